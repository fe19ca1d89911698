//! The call that imports.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use agent_core::{Error, ErrorKind, Result, Storage, WorkspaceId};
use agent_workspace::WorkspaceManager;
use agent_workspace::blobs::with_blobs;
use tracing::instrument;

use crate::feed::{Feed, Reader};
use crate::formats::Format;
use crate::report::{ImportProgress, ImportReport, RefusedTranscript};
use crate::source::{Relation, Transcript};
use crate::writer::{Done, Target, Writer};

type Watch = Arc<dyn Fn(&ImportProgress) + Send + Sync>;

/// Import of the transcripts of one format into a store. The [crate](crate) says what holds.
#[derive(Clone)]
#[must_use]
pub struct Import {
    format: Format,
    path: PathBuf,
    workspace: WorkspaceId,
    is_dry: bool,
    is_finished: bool,
    keeps_unknown: bool,
    watch: Option<Watch>,
}

impl fmt::Debug for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, path, workspace, is_dry, is_finished, keeps_unknown, watch: _ } = self;
        let options = (is_dry, is_finished, keeps_unknown);
        f.debug_tuple("Import").field(&(format, path, workspace)).field(&options).finish_non_exhaustive()
    }
}

impl Import {
    /// Creates an import of a file, or of all files of the format in a folder, into the default workspace. No I/O.
    pub fn new(format: Format, path: impl Into<PathBuf>) -> Self {
        let (path, workspace) = (path.into(), WorkspaceId::DEFAULT);
        Self { format, path, workspace, is_dry: false, is_finished: false, keeps_unknown: false, watch: None }
    }

    /// Sets the workspace of the sessions, which must exist. The same source may be imported to several.
    pub fn with_workspace(self, workspace: WorkspaceId) -> Self {
        Self { workspace, ..self }
    }

    /// Reads the source and what the store has of it, and writes nothing. The report says what would be written.
    pub fn with_dry_run(self) -> Self {
        Self { is_dry: true, ..self }
    }

    /// Says that the sources grow no more. By default a call at the end of a session that has no result yet is left out, with what
    /// follows it, and the next import adds it with its result; now it gets the result that it was interrupted.
    pub fn with_finished(self) -> Self {
        Self { is_finished: true, ..self }
    }

    /// Keeps entries of unknown kinds as events of the type `x.FORMAT.KIND`, which no model is given.
    pub fn with_unknown(self) -> Self {
        Self { keeps_unknown: true, ..self }
    }

    /// Calls this function after each session.
    pub fn with_progress(self, watch: impl Fn(&ImportProgress) + Send + Sync + 'static) -> Self {
        Self { watch: Some(Arc::new(watch)), ..self }
    }

    /// Imports, and returns the report.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a part may be imported; import the source again.
    ///
    /// # Cost
    ///
    /// Reads each source once, on a thread of the runtime that may block, and twice if its lines are not in order. One record is read
    /// for each session that is there, and one commit is written for each turn, or for each 200 events of a longer one.
    ///
    /// # Errors
    ///
    /// - `NotFound`, `Denied` or `Unavailable` if the source cannot be read, and `InvalidInput` if it is none of the format.
    /// - Those of the store, but for sessions that it refuses: these are in [`ImportReport::refused`].
    #[instrument(name = "import", skip_all, fields(format = %self.format))]
    pub async fn run(&self, storage: &Storage) -> Result<ImportReport> {
        if !self.is_dry {
            let workspaces = WorkspaceManager::new(storage.clone());
            match self.workspace {
                WorkspaceId::DEFAULT => workspaces.default_workspace().await.map(drop)?,
                other => workspaces.load(other).await.map(drop)?,
            }
        }
        let (format, path) = (self.format, self.path.clone());
        let (keeps_unknown, is_finished) = (self.keeps_unknown, self.is_finished);
        let opened = tokio::task::spawn_blocking(move || {
            let source = format.open(&path, is_finished)?;
            Ok::<_, Error>(Feed::new(source, format.name(), keeps_unknown, is_finished))
        });
        let feed = opened.await.map_err(|source| {
            Error::new(ErrorKind::Unavailable, "the source cannot be opened").with_source(source)
        })??;
        let target = Target {
            storage: with_blobs(storage.clone()),
            format: self.format.name(),
            workspace: self.workspace,
            is_dry: self.is_dry,
        };
        let mut run = Run { reader: Reader::new(feed), target, report: ImportReport::default(), read: 0 };
        while let Some(transcript) = run.reader.on(Feed::next_transcript).await?? {
            run.transcript(&transcript).await?;
            if let Some(watch) = &self.watch {
                watch(&ImportProgress {
                    sessions: run.read,
                    events: run.report.events,
                    place: transcript.place.clone(),
                });
            }
        }
        // What the source counted after the last transcript.
        run.take_notes().await?;
        Ok(run.report)
    }
}

/// Import under way.
struct Run {
    reader: Reader,
    target: Target,
    report: ImportReport,
    read: u64,
}

impl Run {
    async fn transcript(&mut self, transcript: &Transcript) -> Result<()> {
        self.read += 1;
        let done = self.write(transcript).await;
        self.take_notes().await?;
        match done {
            Ok((done, events, is_unfinished)) => {
                self.report.events += events;
                self.report.unfinished += u64::from(is_unfinished);
                match done {
                    Done::Created => self.report.created += 1,
                    Done::Grown => self.report.grown += 1,
                    Done::Unchanged => self.report.unchanged += 1,
                    Done::Empty => {}
                }
                Ok(())
            }
            Err(error) if is_of_session(&error) => {
                let session = self.target.session_id(&transcript.name);
                let (place, reason) = (transcript.place.clone(), error.to_string());
                self.report.refused.push(RefusedTranscript { place, session, reason });
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn write(&mut self, transcript: &Transcript) -> Result<(Done, u64, bool)> {
        let Self { reader, target, .. } = self;
        let mut writer = target.begin(transcript).await?;
        let mut number = 0;
        if writer.is_new() {
            let shared = match transcript.relation {
                Relation::Branch { .. } => reader.on(|feed| feed.shared()).await?,
                _ => Vec::new(),
            };
            let (new, shared) = target.new_session(transcript, &shared).await?;
            writer.create(new);
            number = shared;
        }
        if matches!(transcript.relation, Relation::Branch { .. }) {
            reader.on(move |feed| feed.share_from(number)).await?;
        }
        write_all(reader, &mut writer).await?;
        writer.end().await
    }

    async fn take_notes(&mut self) -> Result<()> {
        let notes = self.reader.on(|feed| std::mem::take(&mut feed.notes)).await?;
        self.report.cut_off += u64::from(notes.cut_off);
        for (kind, count) in notes.counts {
            *self.report.left_out.entry(kind).or_default() += count;
        }
        Ok(())
    }
}

async fn write_all(reader: &mut Reader, writer: &mut Writer<'_>) -> Result<()> {
    loop {
        let chunk = reader.on(Feed::chunk).await?;
        for piece in chunk.pieces {
            writer.write(piece).await?;
        }
        match chunk.error {
            Some(error) => return Err(error),
            None if chunk.is_end => return Ok(()),
            None => {}
        }
    }
}

/// Returns whether an error is about one session, so that the others are imported all the same.
fn is_of_session(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidInput
            | ErrorKind::LimitExceeded
            | ErrorKind::Deleted
            | ErrorKind::NotFound
            | ErrorKind::Conflict { .. }
            | ErrorKind::Busy { .. }
            | ErrorKind::InvalidTransition { .. }
            | ErrorKind::Corrupt
            | ErrorKind::Unsupported
    )
}
