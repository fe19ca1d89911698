//! Workspaces of an encrypted store: the name, the texts and the settings of each are sealed into one setting.

use std::fmt;
use std::sync::Arc;

use agent_core::commit::Precondition;
use agent_core::json::{RawFields, RawJson};
use agent_core::model::Workspace;
use agent_core::store::{ContentHash, Damaged, Page, WorkspaceQuery, WorkspaceStoreWrapper};
use agent_core::{Error, Result, Revision, WorkspaceId, WorkspaceStore, WriteOutcome, async_trait};
use serde::{Deserialize, Serialize};

use crate::cipher::{Cipher, Purpose};
use crate::keys::Keys;
use crate::sealing::{decoded, encoded};

/// Name of every workspace in the store around which this one is.
const NAME: &str = "~";
/// Beginning of what is sealed.
const SEALED: &str = "~1.";

/// Workspaces of one tenant, sealed on their way to another store.
#[derive(Clone)]
pub(crate) struct SealedWorkspaces {
    pub(crate) inner: Arc<dyn WorkspaceStore>,
    pub(crate) keys: Keys,
}

impl fmt::Debug for SealedWorkspaces {
    /// Shows nothing of the other store.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedWorkspaces").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// What is sealed of a workspace.
#[derive(Serialize, Deserialize)]
struct Content {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(default, skip_serializing_if = "RawFields::is_empty")]
    settings: RawFields,
    #[serde(default, skip_serializing_if = "RawFields::is_empty")]
    extra: RawFields,
}

/// Keys of the tenant of a workspace.
struct Sealer<'k> {
    cipher: Arc<Cipher>,
    keys: &'k Keys,
}

impl Sealer<'_> {
    fn parts<'p>(&'p self, what: &'p [u8], id: &'p WorkspaceId) -> [&'p [u8]; 3] {
        [what, self.keys.tenant_id().as_str().as_bytes(), id.as_uuid().as_bytes()]
    }

    fn seal(&self, mut workspace: Workspace) -> Result<Workspace> {
        let content = Content {
            name: std::mem::replace(&mut workspace.name, NAME.to_owned()),
            provider: workspace.provider.take(),
            description: workspace.description.take(),
            settings: std::mem::take(&mut workspace.settings),
            extra: std::mem::take(&mut workspace.extra),
        };
        let plain = RawJson::of(&content)?;
        let sealed = self.cipher.seal(
            Purpose::Content,
            &self.parts(b"workspace", &workspace.id),
            plain.get().as_bytes(),
        );
        Ok(workspace.with_setting(Workspace::SEALED, RawJson::of(&format!("{SEALED}{}", encoded(&sealed)))?))
    }

    fn open(&self, mut workspace: Workspace) -> Result<Workspace> {
        let id = workspace.id;
        let wrong = || {
            Error::corrupt(format!(
                "workspace {id} is not what the keys of this encrypted store sealed; restore it from a backup"
            ))
        };
        let text: String =
            workspace.settings.get(Workspace::SEALED).ok_or_else(wrong)?.to().map_err(|_| wrong())?;
        let sealed = text.strip_prefix(SEALED).and_then(decoded).ok_or_else(wrong)?;
        let plain =
            self.cipher.open(Purpose::Content, &self.parts(b"workspace", &id), &sealed).ok_or_else(wrong)?;
        let content: Content =
            serde_json::from_slice(&plain).map_err(|source| wrong().with_source(source))?;
        workspace.name = content.name;
        (workspace.provider, workspace.description) = (content.provider, content.description);
        (workspace.settings, workspace.extra) = (content.settings, content.extra);
        Ok(workspace)
    }

    fn seal_config(&self, id: WorkspaceId, text: &str) -> String {
        let sealed = self.cipher.seal(Purpose::Content, &self.parts(b"configuration", &id), text.as_bytes());
        format!("{SEALED}{}", encoded(&sealed))
    }

    fn open_config(&self, id: WorkspaceId, text: &str) -> Result<String> {
        let sealed = text.strip_prefix(SEALED).and_then(decoded);
        let plain = sealed.and_then(|sealed| {
            self.cipher.open(Purpose::Content, &self.parts(b"configuration", &id), &sealed)
        });
        plain.and_then(|plain| String::from_utf8(plain).ok()).ok_or_else(|| {
            Error::corrupt(format!(
                "the configuration of workspace {id} is not what the keys of this encrypted store sealed; restore it from a backup"
            ))
        })
    }
}

impl SealedWorkspaces {
    async fn sealer(&self) -> Result<Sealer<'_>> {
        Ok(Sealer { cipher: self.keys.tenant().await?, keys: &self.keys })
    }

    /// Returns the keys for something that is written.
    async fn writer(&self) -> Result<Sealer<'_>> {
        Ok(Sealer { cipher: self.keys.stored_tenant().await?, keys: &self.keys })
    }
}

impl SealedWorkspaces {
    /// Opens what was read. If it does not open, looks whether the tenant has other keys by now.
    async fn opened<T>(&self, open: impl Fn(&Sealer<'_>) -> Result<T>) -> Result<T> {
        let known = self.sealer().await?;
        let error = match open(&known) {
            Err(error) => error,
            done => return done,
        };
        let now = self.writer().await?;
        if now.cipher.key_id() == known.cipher.key_id() { Err(error) } else { open(&now) }
    }
}

#[async_trait]
impl WorkspaceStoreWrapper for SealedWorkspaces {
    fn inner(&self) -> &dyn WorkspaceStore {
        &*self.inner
    }

    async fn load(&self, id: WorkspaceId) -> Result<Workspace> {
        let found = self.inner.load(id).await?;
        self.opened(|sealer| sealer.open(found.clone())).await
    }

    async fn put(&self, workspace: Workspace, expect: Precondition<Revision>) -> Result<Workspace> {
        workspace.check()?;
        let unsure = |error: Error| error.with_outcome(WriteOutcome::Unknown);
        let mut sealer = self.writer().await?;
        let mut done = self.inner.put(sealer.seal(workspace.clone())?, expect).await?;
        // Keys that were deleted with the tenant meanwhile open nothing that others see.
        loop {
            let now = self.writer().await.map_err(unsure)?;
            if now.cipher.key_id() == sealer.cipher.key_id() {
                return sealer.open(done).map_err(unsure);
            }
            let mut again = workspace.clone();
            again.revision = done.revision;
            let put = self.inner.put(now.seal(again)?, Precondition::Matches(done.revision));
            done = put.await.map_err(unsure)?;
            sealer = now;
        }
    }

    async fn list(&self, query: WorkspaceQuery) -> Result<Page<Workspace>> {
        let mut page = self.inner.list(query).await?;
        if page.items.is_empty() {
            return Ok(page);
        }
        for workspace in std::mem::take(&mut page.items) {
            match self.opened(|sealer| sealer.open(workspace.clone())).await {
                Ok(workspace) => page.items.push(workspace),
                Err(error) => {
                    let object = format!("workspace {}", workspace.id);
                    page.damaged.push(Damaged::of(object, &error).with_workspace(workspace.id));
                }
            }
        }
        Ok(page)
    }

    async fn load_config(&self, id: WorkspaceId) -> Result<Option<String>> {
        match self.inner.load_config(id).await? {
            Some(text) => self.opened(|sealer| sealer.open_config(id, &text)).await.map(Some),
            None => Ok(None),
        }
    }

    async fn load_with_config(&self, id: WorkspaceId) -> Result<(Workspace, Option<String>)> {
        let (workspace, text) = self.inner.load_with_config(id).await?;
        let open = |sealer: &Sealer<'_>| {
            let text = text.as_deref().map(|text| sealer.open_config(id, text)).transpose()?;
            Ok((sealer.open(workspace.clone())?, text))
        };
        self.opened(open).await
    }

    async fn save_config(
        &self,
        id: WorkspaceId,
        text: Option<String>,
        expect: Precondition<ContentHash>,
    ) -> Result<()> {
        ContentHash::check_size(text.as_deref())?;
        let sealer = self.writer().await?;
        let expect = match expect {
            Precondition::Matches(_) => {
                // The one hash is of the text, the other of its sealed form, which changes with the text alone.
                let stored = self.inner.load_config(id).await?;
                let plain = stored.as_deref().map(|text| sealer.open_config(id, text)).transpose()?;
                ContentHash::check(
                    expect,
                    plain.as_deref(),
                    &format_args!("the configuration of workspace {id}"),
                )?;
                stored
                    .map_or(Precondition::MustNotExist, |text| Precondition::Matches(ContentHash::of(&text)))
            }
            other => other,
        };
        self.inner.save_config(id, text.map(|text| sealer.seal_config(id, &text)), expect).await
    }
}
