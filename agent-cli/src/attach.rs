//! Files that are attached to the next message.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use agent_core::event::{Media, Message, Part};

/// Maximum bytes of the files of one message: in base64, with its text, they fit in one event.
const MOST_BYTES: u64 = 11 << 20;

/// Files for the next message, in order.
#[derive(Default)]
pub(crate) struct Attachments(Vec<(Part, u64)>);

impl Attachments {
    /// Reads a file. Returns its line, as messages show it.
    ///
    /// # Errors
    ///
    /// A text for the user.
    pub(crate) fn add(&mut self, path: &Path) -> Result<String, String> {
        let named = |error: std::io::Error| format!("cannot attach {}: {error}", path.display());
        // Opening a pipe would wait for its writer.
        let found = path.metadata().map_err(named)?;
        if !found.is_file() {
            return Err(format!("cannot attach {}: it is not a file", path.display()));
        }
        let room = MOST_BYTES.saturating_sub(self.0.iter().map(|(_, bytes)| bytes).sum());
        let mut bytes = Vec::new();
        // One byte more shows that the file is too large, also if it grows meanwhile.
        File::open(path).and_then(|file| file.take(room + 1).read_to_end(&mut bytes)).map_err(named)?;
        if bytes.len() as u64 > room {
            return Err(format!(
                "cannot attach {}: the files of a message may have {} MiB together",
                path.display(),
                MOST_BYTES >> 20
            ));
        }
        if bytes.is_empty() {
            return Err(format!("cannot attach {}: the file is empty", path.display()));
        }
        let size = bytes.len() as u64;
        let part = part(path, bytes);
        let line = part.text_view("").map(std::borrow::Cow::into_owned).unwrap_or_default();
        self.0.push((part, size));
        Ok(line)
    }

    /// Removes all files. Returns their number.
    pub(crate) fn clear(&mut self) -> usize {
        std::mem::take(&mut self.0).len()
    }

    /// Returns the message with this text and the files, which stay for another attempt.
    pub(crate) fn message(&self, text: &str) -> Message {
        self.0.iter().map(|(part, _)| part.clone()).fold(Message::new(text), Message::with_part)
    }
}

/// Returns the part for a file, by the media type that its name suggests.
fn part(path: &Path, bytes: Vec<u8>) -> Part {
    let guess = mime_guess::from_path(path).first_or_octet_stream();
    let mut media = Media::inline(guess.essence_str(), bytes);
    if let Some(name) = path.file_name() {
        media = media.with_name(name.to_string_lossy());
    }
    match guess.type_().as_str() {
        "image" => Part::Image(media),
        "audio" => Part::Audio(media),
        "video" => Part::Video(media),
        _ => Part::Resource(media),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn files_become_parts_of_the_next_message() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let mut files = Attachments::default();
        assert_eq!(files.add(&file("cat.png", b"\x89PNG")).unwrap(), "[image cat.png, image/png, 4 bytes]");
        let line = files.add(&file("notes", b"one")).unwrap();
        assert_eq!(line, "[resource notes, application/octet-stream, 3 bytes]");
        let message = files.message("What is this?");
        assert_eq!((message.text.as_str(), message.parts.len()), ("What is this?", 3));
        assert_eq!(files.clear(), 2);
        assert_eq!(files.message("and now?"), Message::new("and now?"));
    }

    #[test]
    fn what_cannot_be_attached_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("empty"), b"").unwrap();
        let large = File::create(path("large")).unwrap();
        large.set_len(MOST_BYTES + 1).unwrap();
        let mut files = Attachments::default();
        for (name, why) in
            [("none", "No such file"), ("empty", "is empty"), ("large", "11 MiB"), (".", "not a file")]
        {
            let refused = files.add(&path(name)).unwrap_err();
            assert!(refused.contains(why) && refused.contains("cannot attach"), "{refused}");
        }
        assert_eq!(files.clear(), 0);
    }
}
