//! The public suite on the file store: in folders, and on a model disk that loses power and fails calls.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "the model of a disk is a test's helper"
)]
#![allow(dead_code, reason = "of the model of a disk a part is used here")]

#[path = "disk/fault.rs"]
mod fault;
#[path = "disk/model.rs"]
mod model;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Error, Result as IoResult};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use agent_core::{Backend, ErrorKind, Result, Seq, Storage, TenantId, async_trait};
use agent_storage_conformance::{Damage, DamageKind, Factory, FailingCall};
use agent_storage_fs::{FsConfig, FsStore, Sync as SyncLevel};
use fault::{EIO, Fault};
use model::Disk;
use tempfile::TempDir;

pub(crate) struct Files;

/// A directory; one that this process made is removed at the end.
pub(crate) struct Site {
    path: PathBuf,
    sync: SyncLevel,
    _made: Option<TempDir>,
    /// The model of a disk on which the directory lies.
    model: Option<Disk>,
}

impl Site {
    fn new(sync: SyncLevel) -> Result<Self> {
        let made = tempfile::tempdir().map_err(failed)?;
        Ok(Self { path: made.path().to_owned(), sync, _made: Some(made), model: None })
    }

    fn on(disk: Disk) -> Self {
        Self { path: "/store".into(), sync: SyncLevel::default(), _made: None, model: Some(disk) }
    }

    fn disk(&self) -> Result<&Disk> {
        let none = || agent_core::Error::new(ErrorKind::InvalidInput, format!("{:?} is no model", self.path));
        self.model.as_ref().ok_or_else(none)
    }

    async fn open(&self) -> Result<FsStore> {
        // With so few sessions, each list would look at all of them otherwise.
        let config = FsConfig::new(&self.path).with_sync(self.sync).with_list_scan_max(0);
        match &self.model {
            // Transcripts are written in the background: which call is made when would differ from run to run.
            Some(disk) => config.with_io(Arc::new(disk.clone())).with_transcripts(false).open().await,
            None => config.open().await,
        }
    }
}

#[async_trait]
impl Factory for Files {
    type Site = Site;

    async fn fresh(&self) -> Result<Site> {
        Site::new(SyncLevel::default())
    }

    async fn fresh_for_rounds(&self) -> Result<Site> {
        Site::new(SyncLevel::Off)
    }

    async fn open(&self, site: &Site, tenant: &TenantId) -> Result<Storage> {
        Ok(site.open().await?.for_tenant(tenant).into())
    }

    async fn tenants(&self, site: &Site) -> Result<Option<Arc<dyn Backend>>> {
        Ok(Some(Arc::new(site.open().await?)))
    }

    async fn fresh_for_faults(&self) -> Result<Site> {
        Ok(Site::on(Disk::new()))
    }

    async fn lose_power(&self, site: &Site) -> Result<Site> {
        let trace = site.disk()?.trace();
        let now = trace.moments().pop().unwrap();
        Ok(Site::on(trace.image(now, &BTreeSet::new())))
    }

    async fn fail(&self, site: &Site, call: Option<FailingCall>) -> Result<bool> {
        let disk = site.disk()?;
        let struck = !disk.heal().is_empty();
        if let Some(FailingCall { skip, done, .. }) = call {
            let fault = if done { Fault::DoneButFails(EIO) } else { Fault::Fails(EIO) };
            disk.fail(move |number, _| (number == skip).then_some(fault));
        }
        Ok(struck)
    }

    fn address(&self, site: &Site) -> Option<String> {
        site.path.to_str().map(str::to_owned)
    }

    async fn attach(&self, address: &str) -> Result<Site> {
        Ok(Site { path: address.into(), sync: SyncLevel::default(), _made: None, model: None })
    }

    fn damages(&self) -> &[DamageKind] {
        &[
            DamageKind::Event,
            DamageKind::Workspace,
            DamageKind::Bindings,
            DamageKind::Derived,
            DamageKind::Moved,
        ]
    }

    async fn damage(&self, site: &Site, damage: Damage) -> Result<()> {
        damage_files(&site.path, damage).map_err(failed)
    }
}

fn failed(error: Error) -> agent_core::Error {
    agent_core::Error::new(ErrorKind::Unavailable, "the test's own files").with_source(error)
}

fn damage_files(root: &Path, damage: Damage) -> IoResult<()> {
    match damage {
        Damage::Event(session, seq) => {
            let log = session_folders(root)?
                .into_iter()
                .find(|folder| folder.ends_with(session.to_string()))
                .ok_or_else(|| Error::other("no such session"))?
                .join("events.jsonl");
            let mut bytes = fs::read(&log)?;
            let at = line_of(&bytes, seq).ok_or_else(|| Error::other("no such event"))?;
            bytes[at + 40] ^= 1;
            fs::write(&log, bytes)
        }
        Damage::Workspace(id) => cut(&root.join("workspaces").join(id.to_string()).join("workspace.toml")),
        Damage::Bindings => cut(&root.join("bindings.toml")),
        Damage::Derived => {
            for folder in session_folders(root)? {
                let _ = fs::remove_file(folder.join("session.json"));
            }
            let _ = fs::remove_dir_all(root.join("index"));
            Ok(())
        }
        Damage::MovedAway => fs::rename(root, root.with_extension("away")),
        Damage::MovedBack => fs::rename(root.with_extension("away"), root),
        other => Err(Error::other(format!("no way to do {other:?}"))),
    }
}

fn session_folders(root: &Path) -> IoResult<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for workspace in fs::read_dir(root.join("workspaces"))? {
        if let Ok(sessions) = fs::read_dir(workspace?.path().join("sessions")) {
            for session in sessions {
                folders.push(session?.path());
            }
        }
    }
    Ok(folders)
}

/// Where the line of an event starts.
fn line_of(bytes: &[u8], seq: Seq) -> Option<usize> {
    let start = format!("{{\"seq\":{seq},");
    let mut at = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(start.as_bytes()) {
            return Some(at);
        }
        at += line.len();
    }
    None
}

fn cut(path: &Path) -> IoResult<()> {
    let bytes = fs::read(path)?;
    fs::write(path, &bytes[..bytes.len() / 2])
}

fn main() -> ExitCode {
    agent_storage_conformance::main(Files)
}
