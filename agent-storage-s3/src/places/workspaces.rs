//! Workspaces: record and configuration in one object, so that they exist together or not at all, with a key in the index
//! by last access.

use std::sync::Arc;

use agent_core::commit::Precondition;
use agent_core::json::to_text;
use agent_core::model::Workspace;
use agent_core::store::{ContentHash, Page, WorkspaceQuery};
use agent_core::{Error, ErrorKind, OwnerId, Result, Revision, Timestamp, WorkspaceId};

use crate::layout::keys::{Keys, Minute, hash};
use crate::layout::line::{Line, Tag, push};
use crate::medium::background::Background;
use crate::medium::index_pages::{Folder, Request};
use crate::medium::object::Bucket;
use crate::places::indexed::{Indexed, Objects};
use crate::places::replaced::{Content, Decision};

/// List of the workspaces without an owner.
const UNOWNED: &str = "ws/n";
/// List of the workspaces with an owner, whoever it is.
const OWNED: &str = "ws/a";

/// Returns the list of an owner's workspaces.
fn list_of(owner: &OwnerId) -> String {
    format!("ws/o/{}", &hash(owner.as_str())[..32])
}

/// Record of a workspace that was never created.
const NOTHING: &str = "null";

/// Workspace as it is stored. The object of a deleted one stays, so that its id is not used again.
#[derive(Clone, Debug)]
pub(crate) enum StoredWorkspace {
    /// Record and configuration.
    Live(Box<(Workspace, Option<String>)>),
    Deleted,
    /// Never created: only the key of an attempt was found.
    Never,
}

impl StoredWorkspace {
    pub(crate) fn live(record: Workspace, config: Option<String>) -> Self {
        Self::Live(Box::new((record, config)))
    }
}

impl Content for StoredWorkspace {
    const KIND: &'static str = "workspace";

    fn write(&self, out: &mut Vec<u8>) {
        let (record, config) = match self {
            Self::Live(live) => (&live.0, &live.1),
            Self::Deleted => return,
            Self::Never => return push(out, Tag::Record, NOTHING),
        };
        push(out, Tag::Record, &record.to_json());
        if let Some(config) = config {
            // Text always has a JSON form.
            push(out, Tag::Config, &to_text(config));
        }
    }

    fn read(lines: &[Line]) -> Result<Self, &'static str> {
        let (record, config) = match lines {
            [] => return Ok(Self::Deleted),
            [record] if record.json(Tag::Record) == Some(NOTHING) => return Ok(Self::Never),
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
        Ok(Self::live(record, config))
    }

    /// The last folder is the minute of the last access, or an earlier one from which it is less than 15 minutes.
    fn folders(&self, now: &[&str]) -> Vec<String> {
        let Self::Live(live) = self else { return Vec::new() };
        let minute = Minute::of(live.0.last_accessed);
        let lists = match &live.0.owner {
            None => vec![UNOWNED.to_owned()],
            Some(owner) => vec![OWNED.to_owned(), list_of(owner)],
        };
        let folder = |list: String| {
            let of_list =
                now.iter().filter_map(|now| Some((now, now.strip_prefix(&*list)?.strip_prefix('/')?)));
            let stays = |minute_now: &str| {
                Minute::parse_inverted(minute_now).is_some_and(|now| now.stays_for(minute))
            };
            let stays = of_list.filter(|(_, now)| stays(now)).map(|(now, _)| (*now).to_owned()).next();
            stays.unwrap_or_else(|| format!("{list}/{}", minute.inverted()))
        };
        lists.into_iter().map(folder).collect()
    }
}

impl Indexed for StoredWorkspace {
    const LIST: &'static str = "ws";
    const NEVER: Self = Self::Never;

    fn describe(id: &str) -> String {
        format!("workspace {id}")
    }

    fn is_name(name: &str) -> bool {
        name.parse::<WorkspaceId>().is_ok()
    }
}

fn absent(id: WorkspaceId) -> Error {
    Error::not_found(format!("workspace {id} does not exist"))
}

/// Returns the stored workspace, which must exist.
fn live(id: WorkspaceId, stored: Option<&StoredWorkspace>) -> Result<&(Workspace, Option<String>)> {
    match stored {
        Some(StoredWorkspace::Live(live)) => Ok(live),
        Some(StoredWorkspace::Deleted) => {
            Err(Error::deleted(format!("workspace {id} was deleted; its id is not used again")))
        }
        Some(StoredWorkspace::Never) | None => Err(absent(id)),
    }
}

/// Workspaces of one tenant.
#[derive(Debug)]
pub(crate) struct Workspaces {
    objects: Objects<StoredWorkspace>,
}

impl Workspaces {
    pub(crate) fn new(bucket: Arc<Bucket>, keys: &Keys, background: Arc<Background>) -> Self {
        Self { objects: Objects::new(bucket, keys, keys.workspaces(), background) }
    }

    pub(crate) fn objects(&self) -> &Objects<StoredWorkspace> {
        &self.objects
    }

    /// Returns the record and the configuration, which are in one object.
    pub(crate) async fn load_with_config(&self, id: WorkspaceId) -> Result<(Workspace, Option<String>)> {
        let stored = self.objects.load(&id.to_string()).await?;
        live(id, stored.as_ref()).cloned()
    }

    pub(crate) async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        self.load_with_config(id).await.map(|(record, _)| record)
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
            Ok(Decision::Write(StoredWorkspace::live(new.clone(), config), new))
        };
        self.objects.change(&id.to_string(), decide).await
    }

    /// Removes the object of a workspace, in a generation that is not current any more.
    pub(crate) async fn remove(&self, id: WorkspaceId) -> Result<()> {
        self.objects.remove(&id.to_string()).await
    }

    pub(crate) async fn touch(&self, id: WorkspaceId, at: Timestamp) -> Result<()> {
        let decide = |stored: Option<&StoredWorkspace>| {
            let (record, config) = live(id, stored)?;
            if record.last_accessed >= at {
                return Ok(Decision::Leave(()));
            }
            let mut record = record.clone();
            record.last_accessed = at;
            Ok(Decision::Write(StoredWorkspace::live(record, config.clone()), ()))
        };
        self.objects.change(&id.to_string(), decide).await
    }

    pub(crate) async fn delete(&self, id: WorkspaceId) -> Result<()> {
        let decide = |stored: Option<&StoredWorkspace>| match live(id, stored) {
            Ok(_) => Ok(Decision::Write(StoredWorkspace::Deleted, ())),
            Err(error) if *error.kind() == ErrorKind::Deleted => Ok(Decision::Leave(())),
            Err(error) => Err(error),
        };
        self.objects.change(&id.to_string(), decide).await
    }

    pub(crate) async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        self.load_with_config(id).await.map(|(_, config)| config)
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
            Ok(Decision::Write(StoredWorkspace::live(record.clone(), text.clone()), ()))
        };
        self.objects.change(&id.to_string(), decide).await
    }

    /// Returns a page of workspaces by last access. Those whose deletion has begun are looked at, and passed over unless
    /// they are asked for.
    pub(crate) async fn list(&self, query: &WorkspaceQuery) -> Result<Page<Workspace>> {
        let lists = match &query.owner {
            None => vec![UNOWNED.to_owned(), OWNED.to_owned()],
            Some(owner) if query.with_unowned => vec![UNOWNED.to_owned(), list_of(owner)],
            Some(owner) => vec![list_of(owner)],
        };
        let print = query.fingerprint();
        let folders = lists.iter().map(|list| Folder::whole(self.objects.list(list))).collect();
        let request = Request::new(folders, print, query.cursor.as_ref(), query.limit)?;
        let shown = |stored: StoredWorkspace| match stored {
            StoredWorkspace::Live(live) => Some(live.0).filter(|record| query.matches(record)),
            StoredWorkspace::Deleted | StoredWorkspace::Never => None,
        };
        let sort = |records: &mut [Workspace]| query.sort(records);
        self.objects.page(request.with_total(query.with_total), shown, sort).await
    }
}
