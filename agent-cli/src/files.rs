//! Files that a conversation contains: media of messages and answers, whole outputs of tools, artifacts.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use agent_core::event::{Event, EventPayload, EventType, FullOutput, Media, MediaSource, Part};
use agent_core::model::Artifact;
use agent_core::session::SessionRecord;
use agent_core::store::{BlobContent, BlobInfo, BlobStream, EventPage, PutBlob, ReadBlob, ReadEvents};
use agent_core::text::quoted;
use agent_core::{Error, ErrorKind, Seq, SessionId, SessionStore, SessionStoreExt};
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use crate::content::{Content as FileContent, write_file};
use crate::failure::{Failure, Result};

/// Number of events that are read at once in search of files.
const PAGE: usize = 200;
/// Types of the events that have files.
const TYPES: [EventType; 7] = [
    EventType::USER_MESSAGE,
    EventType::USER_DEFINE_OUTCOME,
    EventType::USER_CUSTOM_TOOL_RESULT,
    EventType::AGENT_MESSAGE,
    EventType::AGENT_PART,
    EventType::AGENT_TOOL_RESULT,
    EventType::SESSION_ARTIFACT_REGISTERED,
];

/// File that a conversation contains.
#[derive(Clone, Debug)]
pub(crate) struct StoredFile {
    seq: Seq,
    /// Place among the files of the event, from 1; 0 if it is the only one.
    place: usize,
    content: Content,
    /// The file as one line: kind, name, media type and size, as text views show it.
    pub(crate) line: String,
    name: Option<String>,
    media_type: Option<String>,
    /// Whether the store has the bytes, as far as that is known without reading them.
    state: State,
}

/// State of the bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Stored,
    /// An event names the blob, and the store does not have it.
    Lost,
    Damaged,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Lost => "lost",
            Self::Damaged => "damaged",
        }
    }
}

#[derive(Clone, Debug)]
enum Content {
    Blob(BlobInfo),
    /// In the event itself.
    Bytes(Bytes),
}

impl Content {
    fn info(&self) -> BlobInfo {
        match self {
            Self::Blob(info) => *info,
            Self::Bytes(bytes) => BlobInfo::of(bytes),
        }
    }
}

impl StoredFile {
    /// Returns the number by which the file is named: that of its event, and its place if there are several.
    pub(crate) fn number(&self) -> String {
        match self.place {
            0 => self.seq.to_string(),
            place => format!("{}.{place}", self.seq),
        }
    }

    /// Returns whether the bytes are lost or damaged.
    pub(crate) fn is_broken(&self) -> bool {
        self.state != State::Stored
    }

    /// Returns the file as a line of a list.
    pub(crate) fn listed(&self) -> String {
        let state = match self.state {
            State::Stored => String::new(),
            state => format!(" ({})", state.name()),
        };
        format!("{:>6}  {}{state}", self.number(), self.line)
    }

    /// Returns the columns of a table: number, media type, number of bytes, state, name. The name is what its sender says, and
    /// no path.
    pub(crate) fn row(&self) -> Vec<String> {
        let or_empty = |text: &Option<String>| text.clone().unwrap_or_default();
        vec![
            self.number(),
            or_empty(&self.media_type),
            self.content.info().bytes.to_string(),
            self.state.name().to_owned(),
            or_empty(&self.name),
        ]
    }

    pub(crate) fn to_value(&self) -> Value {
        let BlobInfo { name: sha256, bytes, .. } = self.content.info();
        let (media, name) = (&self.media_type, &self.name);
        let state = self.state.name();
        json!({"file": self.number(), "event": self.seq, "media": media, "bytes": bytes, "sha256": sha256, "name": name, "state": state})
    }
}

/// Returns the files of an event, in order.
pub(crate) fn files_of(event: &Event) -> Vec<StoredFile> {
    let mut found = Vec::new();
    match event.decode() {
        Ok(
            EventPayload::UserMessage(message)
            | EventPayload::UserDefineOutcome(message)
            | EventPayload::AgentMessage(message),
        ) => found.extend(message.parts.iter().filter_map(of_part)),
        Ok(EventPayload::AgentPart(part)) => found.extend(of_part(&part.content)),
        Ok(EventPayload::AgentToolResult(result) | EventPayload::UserCustomToolResult(result)) => {
            found.extend(result.full.as_ref().and_then(of_output));
            found.extend(result.content.iter().filter_map(of_part));
        }
        Ok(EventPayload::SessionArtifactRegistered(artifact)) => found.extend(of_artifact(&artifact)),
        _ => {}
    }
    let several = found.len() > 1;
    let files = (1..).zip(found).map(|(place, (content, part))| StoredFile {
        seq: event.seq,
        place: if several { place } else { 0 },
        content,
        line: part.text_view("").map(Cow::into_owned).unwrap_or_default(),
        media_type: part.media().map(|media| media.media_type.clone()),
        name: part.media().and_then(|media| media.name.clone()),
        state: State::Stored,
    });
    files.collect()
}

fn of_part(part: &Part) -> Option<(Content, Part)> {
    let content = match &part.media()?.source {
        MediaSource::Inline(bytes) => Content::Bytes(Bytes::copy_from_slice(bytes)),
        MediaSource::Blob { sha256, bytes } => Content::Blob(BlobInfo::new(*sha256, *bytes)),
        _ => return None,
    };
    Some((content, part.clone()))
}

/// Returns the whole output of a tool, if the event has more than its beginning and its end.
fn of_output(full: &FullOutput) -> Option<(Content, Part)> {
    let content = match (full.sha256, &full.text) {
        (Some(name), _) => Content::Blob(BlobInfo::new(name, full.bytes)),
        (None, Some(text)) => Content::Bytes(text.clone().into()),
        (None, None) => return None,
    };
    let info = content.info();
    let media = Media::blob(&full.media_type, info.name, info.bytes).with_name("whole output");
    Some((content, Part::Resource(media)))
}

fn of_artifact(artifact: &Artifact) -> Option<(Content, Part)> {
    let info = artifact.blob?;
    let media_type = artifact.media.as_deref().unwrap_or("application/octet-stream");
    let media = Media::blob(media_type, info.name, info.bytes).with_name(&artifact.path);
    Some((Content::Blob(info), Part::Resource(media)))
}

/// Files of a session.
#[derive(Clone, Copy)]
pub(crate) struct SessionFiles<'a> {
    pub(crate) sessions: &'a dyn SessionStore,
    pub(crate) session: &'a SessionRecord,
}

impl SessionFiles<'_> {
    /// Returns the newest files, oldest first, at least `count` if there are as many, and whether there may be
    /// older ones.
    pub(crate) async fn newest(self, count: usize) -> agent_core::Result<(Vec<StoredFile>, EventPage, bool)> {
        let read = ReadEvents::last(PAGE).with_after(self.session.visible_from).with_types(TYPES);
        let (mut found, mut damaged, mut next) = (Vec::new(), EventPage::default(), Some(read));
        while let Some(read) = next.take_if(|_| found.len() < count) {
            let page = self.sessions.history_of(self.session, read).await?;
            let mut older: Vec<_> = page.events.iter().flat_map(files_of).collect();
            for file in &mut older {
                self.check(file).await?;
            }
            found.splice(0..0, older);
            damaged.damaged.extend(page.damaged);
            next = page.next;
        }
        Ok((found, damaged, next.is_some()))
    }

    /// Returns the file with a number, as [`StoredFile::number`] gives it.
    pub(crate) async fn find(self, number: &str) -> Result<StoredFile> {
        let absent = |what: &str| Failure::absent(format!("session {} has no file {what}", self.session.id));
        let (seq, place) = match number.split_once('.') {
            Some((seq, place)) => (seq.parse(), place.parse::<usize>().map(Some)),
            None => (number.parse::<u64>(), Ok(None)),
        };
        let (Ok(seq @ 1..), Ok(place)) = (seq, place) else {
            let text = format!("{} is no number of a file; it is like 12, or like 12.2", quoted(number));
            return Err(Failure::new(1, "invalid_input", text));
        };
        let read = ReadEvents::first(1).with_after(Seq::new(seq - 1));
        let page = self.sessions.history_of(self.session, read).await?;
        let event = page.events.iter().find(|event| event.seq.get() == seq);
        let files = event.map(files_of).unwrap_or_default();
        match (files.len(), place) {
            (0, _) => Err(absent(number)),
            (1, None) => Ok(files[0].clone()),
            (several, None) => Err(absent(&format!("{number}, but {number}.1 to {number}.{several}"))),
            (_, Some(place)) => {
                place.checked_sub(1).and_then(|place| files.get(place)).cloned().ok_or_else(|| absent(number))
            }
        }
    }

    /// Asks the store whether it has the bytes, and reads none.
    async fn check(self, file: &mut StoredFile) -> agent_core::Result<()> {
        let Content::Blob(info) = &file.content else { return Ok(()) };
        let (owner, _) = self.session.lineage.locate(self.session.id, file.seq);
        let opened = self.sessions.blobs().read(ReadBlob::new(owner, info.name).with_range(0..0)).await;
        file.state = match opened.map_err(|error| (error.kind().clone(), error)) {
            Ok(_) => State::Stored,
            Err((ErrorKind::NotFound, _)) => State::Lost,
            Err((ErrorKind::Corrupt, _)) => State::Damaged,
            Err((_, error)) => return Err(error),
        };
        Ok(())
    }

    /// Opens the file to read it.
    pub(crate) async fn open(self, file: &StoredFile) -> agent_core::Result<(BlobStream, u64)> {
        match &file.content {
            Content::Blob(info) => {
                let read = ReadBlob::new(self.session.id, info.name);
                let BlobContent { blob, content, .. } = self.sessions.event_blob(file.seq, read).await?;
                Ok((content, blob.bytes))
            }
            Content::Bytes(bytes) => Ok((stream::iter([Ok(bytes.clone())]).boxed(), bytes.len() as u64)),
        }
    }

    /// Saves the file at a path. Returns the number of its bytes.
    pub(crate) async fn save(self, file: &StoredFile, path: &Path, replace: bool) -> Result<u64> {
        let (content, bytes) = self.open(file).await?;
        write_file(path, replace, content, Some(bytes)).await
    }

    /// Stores the bytes of a lost or damaged blob again, for each session to which it belongs: this one, and those from which it
    /// was forked, as far as their events name it. Returns these sessions; none if no event names the blob.
    pub(crate) async fn restore(self, copy: &FileContent) -> Result<BTreeSet<SessionId>> {
        let Self { sessions, session } = self;
        let (mut owners, mut next) = (BTreeSet::new(), Some(ReadEvents::first(PAGE)));
        while let Some(read) = next {
            let page = sessions.history_of(session, read).await?;
            if let (None, true, Some(damage)) = (&page.next, owners.is_empty(), page.damaged.first()) {
                // The event that names the blob may be the damaged one.
                return Err(Error::corrupt(format!("session {}: {damage}", session.id)).into());
            }
            let naming = page.events.iter().filter(|event| event.blobs.contains(&copy.info.name));
            owners.extend(naming.map(|event| session.lineage.locate(session.id, event.seq).0));
            next = page.next;
        }
        for owner in &owners {
            let put = sessions.blobs().put(PutBlob::new(*owner, copy.info, copy.open())).await;
            put.map_err(|error| copy.not_stored(error, "run the command again"))?;
        }
        Ok(owners)
    }
}
