//! The public suite on the SQLite store. The clauses that cut the power and fail calls run in `power`, on a model of a
//! disk under SQLite.

#![allow(clippy::panic, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use agent_core::{Backend, ErrorKind, Result, Storage, TenantId, async_trait};
use agent_storage_conformance::{Damage, DamageKind, Factory};
use agent_storage_sqlite::{SqliteConfig, SqliteStore, Sync as SyncLevel};
use rusqlite::{Connection, params};
use tempfile::TempDir;

pub(crate) struct Sqlite;

/// A file; the folder that this process made for it is removed at the end.
pub(crate) struct Site {
    path: PathBuf,
    sync: SyncLevel,
    _made: Option<TempDir>,
}

impl Site {
    fn new(sync: SyncLevel) -> Result<Self> {
        let made = tempfile::tempdir().map_err(failed)?;
        Ok(Self { path: made.path().join("agent.db"), sync, _made: Some(made) })
    }

    async fn open(&self) -> Result<SqliteStore> {
        SqliteConfig::new(&self.path).with_sync(self.sync).open().await
    }
}

#[async_trait]
impl Factory for Sqlite {
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

    fn address(&self, site: &Site) -> Option<String> {
        site.path.to_str().map(str::to_owned)
    }

    async fn attach(&self, address: &str) -> Result<Site> {
        Ok(Site { path: address.into(), sync: SyncLevel::default(), _made: None })
    }

    fn damages(&self) -> &[DamageKind] {
        const KINDS: &[DamageKind] = &[
            DamageKind::Event,
            DamageKind::Workspace,
            DamageKind::Bindings,
            DamageKind::Derived,
            DamageKind::Moved,
        ];
        KINDS
    }

    async fn damage(&self, site: &Site, damage: Damage) -> Result<()> {
        let away = site.path.with_extension("away");
        match damage {
            Damage::MovedAway => std::fs::rename(&site.path, away).map_err(failed),
            Damage::MovedBack => std::fs::rename(away, &site.path).map_err(failed),
            damage => damage_rows(site, damage).map_err(failed),
        }
    }
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> agent_core::Error {
    agent_core::Error::new(ErrorKind::Unavailable, "the test's own file").with_source(error)
}

fn damage_rows(site: &Site, damage: Damage) -> rusqlite::Result<()> {
    let conn = Connection::open(&site.path)?;
    match damage {
        Damage::Event(session, seq) => {
            // Another character in the middle of the payload; it is still JSON.
            let flip = "UPDATE events SET json = substr(json, 1, length(json) - 6) || \
                char(unicode(substr(json, -6, 1)) + 1) || substr(json, -5) \
                WHERE log = (SELECT log FROM logs WHERE session = ?) AND seq = ?";
            let seq = i64::try_from(seq.get()).unwrap_or(0);
            assert_eq!(conn.execute(flip, params![session.to_string(), seq])?, 1);
        }
        Damage::Workspace(id) => {
            let cut = "UPDATE workspaces SET record = substr(record, 1, length(record) / 2) WHERE id = ?";
            assert_eq!(conn.execute(cut, [id.as_uuid().to_string()])?, 1);
        }
        Damage::Bindings => {
            let cut = "UPDATE bindings SET workspace = substr(workspace, 1, length(workspace) / 2)";
            conn.execute_batch(cut)?;
        }
        Damage::Derived => {
            let drops: Vec<String> = conn
                .prepare(
                    "SELECT format('DROP %s %s', type, name) FROM sqlite_schema \
                     WHERE sql LIKE 'CREATE INDEX%' OR type = 'view'",
                )?
                .query_map([], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            assert!(drops.len() > 8, "{drops:?}");
            conn.execute_batch(&drops.join("; "))?;
            conn.execute_batch("DELETE FROM sessions; DELETE FROM labels; DELETE FROM heartbeats")?;
        }
        other => panic!("no way to do {other:?}"),
    }
    Ok(())
}

fn main() -> ExitCode {
    agent_storage_conformance::main(Sqlite)
}
