//! `chat backup`.

use std::path::PathBuf;

use agent_core::ErrorKind;
use serde_json::json;

use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::help::examples;
use crate::output::Out;

/// Options of `chat backup`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples!("chat backup ./backup.db --store sqlite:./notes.db"))]
pub(crate) struct Backup {
    /// Backup file; must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Backup {
    pub(super) async fn run(self, args: &Args) -> Result<()> {
        let address = args.address()?;
        if let Some((database, schema)) = address.postgres() {
            return Err(Failure::new(1, "unsupported", dump(&address.shown(), &database, &schema)));
        }
        let Some(config) = address.database() else {
            let copied = if address.is_bucket() {
                "all objects below its prefix with a tool of the server"
            } else {
                "its folder"
            };
            let text = format!(
                "{} is not a SQLite store, and only SQLite stores can be backed up; run `chat copy FROM sqlite:FILE`, or stop the programs that use the store and copy {copied}",
                address.shown()
            );
            return Err(Failure::new(1, "unsupported", text));
        };
        let store = config.clone().with_create(false).open().await?;
        match store.backup(&self.file).await {
            Err(error) if *error.kind() == ErrorKind::InvalidInput => {
                return Err(Failure::new(4, "exists", crate::failure::full_text(&error)));
            }
            done => done?,
        }
        let bytes = std::fs::metadata(&self.file).map_or(0, |meta| meta.len());
        let text = format!(
            "backed up all tenants of {} to {} ({bytes} bytes)",
            address.shown(),
            self.file.display()
        );
        Out::new(args.json).result(&json!({"file": self.file, "bytes": bytes}), &text);
        Ok(())
    }
}

/// Returns what backs up a schema of a database in PostgreSQL.
fn dump(store: &str, database: &str, schema: &str) -> String {
    format!(
        "{store} is backed up by programs of PostgreSQL, with all tenants, while others write; run `pg_dump --format=custom \
         --schema={schema} --file=FILE --username=USER '{database}'` as a user who may read all of its rows, or back up the whole server \
         with `pg_basebackup`"
    )
}
