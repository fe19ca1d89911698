//! Workspaces: record and configuration in one object, so that they exist together or not at all.

use std::sync::Arc;

use agent_core::commit::Precondition;
use agent_core::json::to_text;
use agent_core::model::Workspace;
use agent_core::store::{ContentHash, Page, WorkspaceQuery};
use agent_core::{Error, ErrorKind, Result, Revision, Timestamp, WorkspaceId};

use crate::keys::{Keys, last};
use crate::line::{Line, Tag, push};
use crate::object::Bucket;
use crate::replaced::{Content, Decision, Loaded};

/// Workspace as it is stored; `None` if it was deleted.
#[derive(Clone, Debug)]
pub(crate) struct StoredWorkspace(pub(crate) Option<(Workspace, Option<String>)>);

impl Content for StoredWorkspace {
    const KIND: &'static str = "workspace";

    fn write(&self, out: &mut Vec<u8>) {
        let Some((record, config)) = &self.0 else { return };
        push(out, Tag::Record, &record.to_json());
        if let Some(config) = config {
            // Text always has a JSON form.
            push(out, Tag::Config, &to_text(config));
        }
    }

    fn read(lines: &[Line]) -> Result<Self, &'static str> {
        let (record, config) = match lines {
            [] => return Ok(Self(None)),
            [record] => (record, None),
            [record, config] => (record, Some(config)),
            _ => return Err("has too many lines"),
        };
        let record = record.json(Tag::Record).and_then(|json| Workspace::from_json(json).ok());
        let record = record.ok_or("has a damaged record")?;
        let text = |line: &Line| {
            let json = line.json(Tag::Config)?;
            serde_json::from_str::<String>(json).ok()
        };
        let config = config.map(|line| text(line).ok_or("has a damaged configuration")).transpose()?;
        Ok(Self(Some((record, config))))
    }
}

fn absent(id: WorkspaceId) -> Error {
    Error::new(ErrorKind::NotFound, format!("workspace {id} does not exist"))
}

/// Returns the stored workspace, which must exist.
fn live(id: WorkspaceId, stored: Option<&StoredWorkspace>) -> Result<&(Workspace, Option<String>)> {
    match stored {
        Some(StoredWorkspace(Some(live))) => Ok(live),
        Some(StoredWorkspace(None)) => Err(Error::new(
            ErrorKind::Deleted,
            format!("workspace {id} was deleted; its id is not used again"),
        )),
        None => Err(absent(id)),
    }
}

/// Workspaces of one tenant.
#[derive(Debug)]
pub(crate) struct Workspaces {
    bucket: Arc<Bucket>,
    keys: Keys,
}

impl Workspaces {
    pub(crate) fn new(bucket: Arc<Bucket>, keys: Keys) -> Self {
        Self { bucket, keys }
    }

    async fn existing(&self, id: WorkspaceId) -> Result<(Workspace, Option<String>)> {
        let stored =
            self.bucket.load::<StoredWorkspace>(&self.keys.workspace(id), self.bucket.deadline()).await?;
        live(id, stored.as_ref()).cloned()
    }

    pub(crate) async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        self.existing(id).await.map(|(record, _)| record)
    }

    pub(crate) async fn put(&self, new: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        new.check()?;
        let id = new.id;
        let decide = |stored: Option<&StoredWorkspace>| {
            let now = match live(id, stored) {
                Ok(now) => Some(now),
                Err(error) if *error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            let mut new = new.clone();
            new.prepare_put(now.map(|(record, _)| record), expect)?;
            let config = now.and_then(|(_, config)| config.clone());
            Ok(Decision::Write(StoredWorkspace(Some((new.clone(), config))), new))
        };
        self.bucket.replace(&self.keys.workspace(id), self.bucket.deadline(), decide).await
    }

    /// Removes the object of a workspace, in a generation that is not current any more.
    pub(crate) async fn remove(&self, id: WorkspaceId) -> Result<()> {
        self.bucket.delete(&self.keys.workspace(id), self.bucket.deadline()).await
    }

    pub(crate) async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        let decide = |stored: Option<&StoredWorkspace>| {
            let (record, config) = live(id, stored)?;
            if record.last_accessed >= at {
                return Ok(Decision::Leave(()));
            }
            let mut record = record.clone();
            record.last_accessed = at;
            Ok(Decision::Write(StoredWorkspace(Some((record, config.clone()))), ()))
        };
        self.bucket.replace(&self.keys.workspace(id), self.bucket.deadline(), decide).await
    }

    pub(crate) async fn delete(&self, id: WorkspaceId) -> Result<()> {
        let decide = |stored: Option<&StoredWorkspace>| match live(id, stored) {
            Ok(_) => Ok(Decision::Write(StoredWorkspace(None), ())),
            Err(error) if *error.kind() == ErrorKind::Deleted => Ok(Decision::Leave(())),
            Err(error) => Err(error),
        };
        self.bucket.replace(&self.keys.workspace(id), self.bucket.deadline(), decide).await
    }

    pub(crate) async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        self.existing(id).await.map(|(_, config)| config)
    }

    pub(crate) async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        ContentHash::check_size(text.as_deref())
            .map_err(|error| error.about(format_args!("the configuration of workspace {id}")))?;
        let decide = |stored: Option<&StoredWorkspace>| {
            let (record, now) = live(id, stored)?;
            let what = format_args!("the configuration of workspace {id}");
            ContentHash::check(expect, now.as_deref(), &what)?;
            Ok(Decision::Write(StoredWorkspace(Some((record.clone(), text.clone()))), ()))
        };
        self.bucket.replace(&self.keys.workspace(id), self.bucket.deadline(), decide).await
    }

    pub(crate) async fn list(&self, query: &WorkspaceQuery) -> Result<Page<Workspace>> {
        let mut keys =
            self.bucket.list_all(&self.keys.workspaces(), false, self.bucket.deadline()).await?.keys;
        // An object that belongs to no workspace was put there by another program.
        keys.retain(|key| last(key).parse::<WorkspaceId>().is_ok());
        let live = |_: &str, stored: Loaded<StoredWorkspace>| stored.content.0.map(|(record, _)| record);
        let name = |key: &str| format!("workspace {}", last(key));
        let (records, damaged) = self.bucket.load_each(keys, live, name).await?;
        Ok(query.page(records)?.with_damaged(damaged))
    }
}
