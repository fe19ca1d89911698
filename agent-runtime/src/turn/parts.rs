//! Parts of an answer while it streams: collected in the provider's order, and bounded.

use crate::config::Limits;
use crate::model::event::{ModelCall, ModelPart, PartContent, PartKind};
use crate::run::limit::LimitKind;
use crate::turn::answer_limits::{Full, Room};
use agent_core::event::{AgentPart, EventPayload, MediaSource, Message, Native, Part};
use agent_core::json::RawJson;

/// Part of an answer, as it was received.
#[derive(Debug)]
pub(super) struct ReceivedPart {
    pub(super) content: PartContent,
    pub(super) native: Option<Native>,
    /// Number of the part: the provider's, or else its place in the answer.
    pub(super) index: u32,
    /// True if the provider has ended the part.
    pub(super) is_done: bool,
}

/// Part that is collected.
#[derive(Debug)]
struct Collected {
    kind: PartKind,
    is_numbered: bool,
    /// Pieces of a text, of reasoning or of a refusal.
    text: String,
    /// Bytes of the pieces of another part.
    json: usize,
    whole: Option<ModelPart>,
}

/// Refusal of a part.
#[derive(Debug)]
pub(super) enum Refused {
    /// The answer has reached a limit.
    Full(Full),
    /// The part is not valid; the text ends a sentence about the provider.
    Invalid(String),
}

impl From<Full> for Refused {
    fn from(full: Full) -> Self {
        Self::Full(full)
    }
}

/// Collected parts of an answer, in order.
#[derive(Debug, Default)]
pub(super) struct Parts(Vec<Collected>);

impl Parts {
    /// Adds a piece to the last part, or begins a part. The piece is cut to the capacity.
    pub(super) fn say(&mut self, kind: PartKind, piece: &mut String, room: &mut Room) -> Result<(), Refused> {
        let goes_on = |last: &Collected| !last.is_numbered && last.kind == kind && last.whole.is_none();
        if !self.0.last().is_some_and(goes_on) {
            self.begin(kind, false, room).inspect_err(|_| piece.clear())?;
        }
        match self.0.last_mut() {
            Some(last) => last.add(piece, room),
            None => Ok(()),
        }
    }

    /// Adds a whole call without a number. `waits` says whether it needs an answer or a result from outside.
    pub(super) fn call(&mut self, mut call: ModelCall, waits: bool, room: &mut Room) -> Result<(), Refused> {
        check_depth(call.input.depth() + 1, "called a tool")?;
        room.call(&mut call, waits)?;
        self.begin(PartKind::Call, false, room)?.whole = Some(ModelPart::call(call));
        Ok(())
    }

    /// Begins a numbered part.
    pub(super) fn start(&mut self, index: u32, kind: PartKind, room: &mut Room) -> Result<(), Refused> {
        if index as usize != self.0.len() {
            let next = self.0.len();
            let text = format!("began part {index} in place of {next}; parts are numbered without gaps");
            return Err(Refused::Invalid(text));
        }
        self.begin(kind, true, room).map(drop)
    }

    /// Adds a piece to a numbered part, cut to the capacity. Returns the kind of the part.
    pub(super) fn delta(
        &mut self,
        index: u32,
        piece: &mut String,
        room: &mut Room,
    ) -> (PartKind, Result<(), Refused>) {
        match self.growing(index) {
            Ok(part) => (part.kind, part.add(piece, room)),
            Err(refused) => (PartKind::Other, Err(refused)),
        }
    }

    /// Ends a numbered part. Returns its text, cut to the capacity, if no piece of it was received before.
    pub(super) fn done(
        &mut self,
        index: u32,
        part: ModelPart,
        waits: impl Fn(&str) -> bool,
        room: &mut Room,
    ) -> (Option<(PartKind, String)>, Result<(), Refused>) {
        if index as usize == self.0.len()
            && let Err(refused) = self.start(index, part.kind(), room)
        {
            return (None, Err(refused));
        }
        match self.growing(index) {
            Ok(growing) => growing.end(part, waits, room),
            Err(refused) => (None, Err(refused)),
        }
    }

    /// Returns the number of the last part of a kind.
    pub(super) fn last_of(&self, kind: PartKind) -> Option<u32> {
        let at = self.0.iter().rposition(|part| part.kind == kind)?;
        u32::try_from(at).ok()
    }

    /// Returns whether a call is among the parts.
    pub(super) fn has_call(&self) -> bool {
        self.0.iter().any(|part| part.kind == PartKind::Call && part.whole.is_some())
    }

    /// Returns the number of a part that a complete answer has not ended.
    pub(super) fn unended(&self) -> Option<usize> {
        let has_no_end =
            |part: &Collected| part.whole.is_none() && matches!(part.kind, PartKind::Call | PartKind::Other);
        self.0.iter().position(has_no_end)
    }

    /// Returns the parts. Those of a cut answer have no native form; its unfinished calls and numbered reasoning are
    /// left out.
    pub(super) fn finish(self, is_cut: bool) -> Vec<ReceivedPart> {
        (0..).zip(self.0).filter_map(|(at, part)| part.finish(at, is_cut)).collect()
    }

    fn begin(
        &mut self,
        kind: PartKind,
        is_numbered: bool,
        room: &mut Room,
    ) -> Result<&mut Collected, Refused> {
        room.part()?;
        self.0.push(Collected { kind, is_numbered, text: String::new(), json: 0, whole: None });
        self.0.last_mut().ok_or_else(|| Refused::Invalid("gave no part".to_owned()))
    }

    fn growing(&mut self, index: u32) -> Result<&mut Collected, Refused> {
        let count = self.0.len();
        let found = self.0.get_mut(index as usize).filter(|part| part.is_numbered && part.whole.is_none());
        found.ok_or_else(|| {
            Refused::Invalid(if index as usize >= count {
                format!("gave part {index} in place of {count}; parts are numbered without gaps")
            } else {
                format!("continued part {index}, which has ended or has no number")
            })
        })
    }
}

impl Collected {
    /// Adds a piece, cut to the capacity.
    fn add(&mut self, piece: &mut String, room: &mut Room) -> Result<(), Refused> {
        let fits = match self.kind {
            PartKind::Text | PartKind::Refusal => room.text(piece),
            PartKind::Reasoning => room.thinking(piece),
            PartKind::Call | PartKind::Other => {
                self.json += piece.len().max(1);
                return Ok(room.json(piece.len())?);
            }
        };
        self.text.push_str(piece);
        Ok(fits?)
    }

    /// Takes the whole part in place of its pieces.
    fn end(
        &mut self,
        mut part: ModelPart,
        waits: impl Fn(&str) -> bool,
        room: &mut Room,
    ) -> (Option<(PartKind, String)>, Result<(), Refused>) {
        if part.kind() != self.kind {
            let text = format!("ended a part of the kind {:?} as {:?}", self.kind, part.kind());
            return (None, Err(Refused::Invalid(text)));
        }
        if let Err(refused) = check(&part) {
            return (None, Err(refused));
        }
        room.give_back(self.json);
        let mut shown = None;
        let fits = match &mut part.content {
            PartContent::Text { text, .. } | PartContent::Reasoning(text) => {
                self.replace(text, room).map(|piece| shown = piece)
            }
            PartContent::Part(Part::Refusal { text, .. }) => {
                self.replace(text, room).map(|piece| shown = piece)
            }
            PartContent::Call(call) => {
                let waits = waits(&call.name);
                room.call(call, waits).map_err(Refused::from)
            }
            PartContent::Part(other) => {
                let medium = other.media().and_then(|media| match &media.source {
                    MediaSource::Inline(bytes) => Some(bytes.len()),
                    _ => None,
                });
                RawJson::of(other)
                    .map_or(Ok(()), |json| room.medium(json.get().len(), medium.unwrap_or(0)))
                    .map_err(Refused::from)
            }
        };
        let native = part.native.as_ref().map_or(0, |native| native.item.get().len());
        let fits = fits.and_then(|()| if native > 0 { Ok(room.json(native)?) } else { Ok(()) });
        if fits.is_ok() {
            if let PartContent::Text { text, .. } | PartContent::Reasoning(text) = &part.content {
                self.text.clone_from(text);
            }
            self.whole = Some(part);
        }
        (shown.map(|text| (self.kind, text)), fits)
    }

    /// Takes a whole text in place of the pieces. Returns what is to be shown of it: nothing after pieces.
    fn replace(&mut self, text: &str, room: &mut Room) -> Result<Option<String>, Refused> {
        if *text == self.text {
            return Ok(None);
        }
        let is_new = self.text.is_empty();
        room.give_back(std::mem::take(&mut self.text).len());
        let mut piece = text.to_owned();
        self.add(&mut piece, room)?;
        Ok(is_new.then_some(piece))
    }

    fn finish(self, index: u32, is_cut: bool) -> Option<ReceivedPart> {
        let is_done = self.whole.is_some();
        let content = match (self.whole, self.kind) {
            (Some(part), _) => {
                let native = part.native.filter(|_| !is_cut);
                return Some(ReceivedPart { content: part.content, native, index, is_done });
            }
            (None, PartKind::Text) => PartContent::Text { text: self.text, citations: Vec::new() },
            (None, PartKind::Reasoning) if !(is_cut && self.is_numbered) => PartContent::Reasoning(self.text),
            (None, PartKind::Refusal) => PartContent::Part(Part::refusal(self.text)),
            (None, PartKind::Reasoning | PartKind::Call | PartKind::Other) => return None,
        };
        Some(ReceivedPart { content, native: None, index, is_done })
    }
}

/// Checks that the part can be stored.
fn check(part: &ModelPart) -> Result<(), Refused> {
    let payload = match &part.content {
        PartContent::Text { text, citations } => {
            let mut message = Message::new(text);
            message.citations.clone_from(citations);
            message.native.clone_from(&part.native);
            EventPayload::AgentMessage(message)
        }
        PartContent::Reasoning(text) => {
            let mut message = Message::new(text);
            message.native.clone_from(&part.native);
            EventPayload::AgentThinking(message)
        }
        PartContent::Part(content) => {
            let mut item = AgentPart::new(content.clone());
            item.native.clone_from(&part.native);
            EventPayload::AgentPart(item)
        }
        PartContent::Call(call) => {
            check_depth(call.input.depth() + 1, "called a tool")?;
            let Some(native) = &part.native else { return Ok(()) };
            // The call gets its id and its name later.
            EventPayload::AgentThinking(Message::new("").with_native(native.clone()))
        }
    };
    payload
        .check()
        .map_err(|error| Refused::Invalid(format!("gave a part that cannot be stored: {error}")))?;
    let json = payload.to_json();
    check_depth(json.depth(), "gave a part")?;
    let input = if let PartContent::Call(call) = &part.content { call.input.get().len() } else { 0 };
    if json.get().len() + input > Limits::CALL_MAX_BYTES && part.native.is_some() {
        return Err(Full::Bytes(LimitKind::ItemBytes, Limits::CALL_MAX_BYTES).into());
    }
    Ok(())
}

/// Checks that JSON of so many levels can be stored.
fn check_depth(levels: usize, what: &str) -> Result<(), Refused> {
    if levels <= RawJson::MAX_DEPTH {
        return Ok(());
    }
    let most = RawJson::MAX_DEPTH - 1;
    Err(Refused::Invalid(format!("{what} with JSON of {} levels, more than {most}", levels - 1)))
}
