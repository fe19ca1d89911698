//! Messages of a conversation in segments that requests share, so that none is copied for a further request.

use std::fmt;
use std::iter::FlatMap;
use std::ops::Index;
use std::sync::Arc;
use std::{slice, vec};

use crate::context::message::ModelMessage;

/// Messages that are shared together.
type Segment = Arc<Vec<ModelMessage>>;

/// Messages of a conversation, oldest first, which their clones share.
///
/// A clone copies no message: they are in segments, at most one more than the binary logarithm of their number, and a clone
/// counts one more owner of each. Added messages leave the long segments before them as they are. A method that changes
/// a message first copies its segment if a clone has it too.
///
/// ```
/// use agent_runtime::context::{Messages, ModelMessage};
///
/// let before = Messages::from([ModelMessage::user("Hello"), ModelMessage::agent("Hi")]);
/// let mut messages = before.clone();
/// messages.push(ModelMessage::user("What is 6 x 7?"));
/// assert!(messages.len() == 3 && messages.starts_with(&before));
/// assert!(std::ptr::eq(&messages[0], &before[0]));
///
/// // A wrapper of a provider changes a message of its own request only.
/// if let Some(first) = messages.get_mut(0) {
///     *first = ModelMessage::user("Good morning");
/// }
/// assert_eq!(before[0], ModelMessage::user("Hello"));
///
/// // As a vector, the messages can be changed in any way.
/// let mut all = Vec::from(messages);
/// all.remove(0);
/// assert_eq!(Messages::from(all), [ModelMessage::agent("Hi"), ModelMessage::user("What is 6 x 7?")]);
/// ```
#[derive(Clone, Default, Eq)]
pub struct Messages {
    /// Segments, none of them empty. Each is at least twice as long as the next one, so that they are few. A segment is joined
    /// with what is added behind it only if that is more than half as long, so that a message is seldom moved.
    segments: Vec<Segment>,
}

impl Messages {
    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.segments.iter().map(|segment| segment.len()).sum()
    }

    /// Returns whether there is no message.
    pub const fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns the messages, oldest first.
    pub fn iter(&self) -> <&Self as IntoIterator>::IntoIter {
        self.into_iter()
    }

    /// Returns the oldest message.
    pub fn first(&self) -> Option<&ModelMessage> {
        self.segments.first()?.first()
    }

    /// Returns the newest message.
    pub fn last(&self) -> Option<&ModelMessage> {
        self.segments.last()?.last()
    }

    /// Returns the message at an index from 0.
    pub fn get(&self, index: usize) -> Option<&ModelMessage> {
        self.iter().nth(index)
    }

    /// Returns the message at an index from 0 to be changed. Copies its segment if a clone shares it.
    pub fn get_mut(&mut self, mut index: usize) -> Option<&mut ModelMessage> {
        for segment in &mut self.segments {
            if index < segment.len() {
                return Arc::make_mut(segment).get_mut(index);
            }
            index -= segment.len();
        }
        None
    }

    /// Returns whether the first messages are these.
    pub fn starts_with(&self, start: &Self) -> bool {
        // What is shared need not be compared.
        let both = self.segments.iter().zip(&start.segments);
        let shared: usize =
            both.take_while(|(one, other)| Arc::ptr_eq(one, other)).map(|(one, _)| one.len()).sum();
        start.len() <= self.len()
            && self.iter().skip(shared).zip(start.iter().skip(shared)).all(|(one, other)| one == other)
    }

    /// Adds a message at the end.
    pub fn push(&mut self, message: ModelMessage) {
        self.extend([message]);
    }
}

impl Extend<ModelMessage> for Messages {
    fn extend<I: IntoIterator<Item = ModelMessage>>(&mut self, messages: I) {
        let mut added: Vec<_> = messages.into_iter().collect();
        if added.is_empty() {
            return;
        }
        while let Some(last) = self.segments.pop_if(|last| last.len() < 2 * added.len()) {
            added.splice(..0, Arc::unwrap_or_clone(last));
        }
        self.segments.push(Arc::new(added));
    }
}

impl FromIterator<ModelMessage> for Messages {
    fn from_iter<I: IntoIterator<Item = ModelMessage>>(messages: I) -> Self {
        let mut all = Self::default();
        all.extend(messages);
        all
    }
}

impl From<Vec<ModelMessage>> for Messages {
    fn from(messages: Vec<ModelMessage>) -> Self {
        messages.into_iter().collect()
    }
}

impl<const N: usize> From<[ModelMessage; N]> for Messages {
    fn from(messages: [ModelMessage; N]) -> Self {
        messages.into_iter().collect()
    }
}

impl From<Messages> for Vec<ModelMessage> {
    fn from(messages: Messages) -> Self {
        messages.segments.into_iter().flat_map(Arc::unwrap_or_clone).collect()
    }
}

impl IntoIterator for Messages {
    type Item = ModelMessage;
    type IntoIter = vec::IntoIter<ModelMessage>;

    fn into_iter(self) -> Self::IntoIter {
        Vec::from(self).into_iter()
    }
}

impl<'a> IntoIterator for &'a Messages {
    type Item = &'a ModelMessage;
    type IntoIter = FlatMap<
        slice::Iter<'a, Segment>,
        slice::Iter<'a, ModelMessage>,
        fn(&'a Segment) -> slice::Iter<'a, ModelMessage>,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.segments.iter().flat_map(|segment| segment.iter())
    }
}

impl Index<usize> for Messages {
    type Output = ModelMessage;

    #[allow(clippy::expect_used, reason = "an index that is out of range panics, as that of a vector")]
    fn index(&self, index: usize) -> &ModelMessage {
        self.get(index).expect("the index is less than the number of messages")
    }
}

impl PartialEq for Messages {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.starts_with(other)
    }
}

impl<T: AsRef<[ModelMessage]> + ?Sized> PartialEq<T> for Messages {
    fn eq(&self, other: &T) -> bool {
        self.iter().eq(other.as_ref())
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn numbered(numbers: std::ops::Range<usize>) -> Vec<ModelMessage> {
        numbers.map(|n| ModelMessage::user(n.to_string())).collect()
    }

    #[test]
    fn messages_are_in_few_segments_however_they_come() {
        let mut messages = Messages::default();
        let mut copies = 0;
        for size in [1, 1, 2, 100, 1, 7, 99, 1000, 999, 1, 1, 1, 500].repeat(4) {
            let before = messages.clone();
            messages.extend(numbered(messages.len()..messages.len() + size));
            copies += before.iter().zip(&messages).filter(|(one, other)| !std::ptr::eq(*one, *other)).count();
            let lengths: Vec<_> = messages.segments.iter().map(|segment| segment.len()).collect();
            assert!(lengths.windows(2).all(|pair| pair[0] >= 2 * pair[1]), "{lengths:?}");
            assert_eq!(
                (messages.len(), messages.last()),
                (before.len() + size, numbered(0..messages.len()).last())
            );
        }
        assert!(copies < 8 * messages.len(), "{copies} of {}", messages.len());
        assert_eq!(messages, numbered(0..messages.len()));
        assert_eq!(Messages::default(), Messages::from(Vec::new()));
    }

    #[test]
    fn equality_does_not_depend_on_the_segments() {
        let whole = Messages::from(numbered(0..9));
        let mut parts = Messages::from(numbered(0..6));
        parts.extend(numbered(6..9));
        assert_eq!((whole.segments.len(), parts.segments.len()), (1, 2));
        assert_eq!(whole, parts);
        assert!(
            whole.starts_with(&Messages::from(numbered(0..7))) && parts.starts_with(&Messages::default())
        );
        assert!(!parts.starts_with(&Messages::from(numbered(0..10))));
        assert!(!parts.starts_with(&Messages::from(numbered(1..3))));
        assert_eq!(format!("{parts:?}"), format!("{:?}", numbered(0..9)));
        assert_eq!(parts.iter().rev().nth(5), Some(&parts[3]));
        assert_eq!((parts.get(9), parts.first()), (None, Some(&whole[0])));
    }

    #[test]
    fn a_change_is_seen_by_no_clone() {
        let mut messages = Messages::from(numbered(0..6));
        messages.extend(numbered(6..8));
        let before = messages.clone();
        *messages.get_mut(7).unwrap() = ModelMessage::user("changed");
        assert_eq!((&before[7], &messages[7]), (&ModelMessage::user("7"), &ModelMessage::user("changed")));
        assert!(std::ptr::eq(&before[0], &messages[0]), "another segment is not copied");
        assert!(messages.get_mut(8).is_none());
        assert_eq!(before.into_iter().collect::<Vec<_>>(), numbered(0..8));
    }
}
