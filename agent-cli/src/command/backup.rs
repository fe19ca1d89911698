//! `chat backup`.

use std::path::PathBuf;

use agent_core::ErrorKind;
use serde_json::json;

use super::copy::Copy;
use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::help::examples;
use crate::output::Out;
use crate::progress::Progress;
use crate::stores::copy_address;

/// Options of `chat backup`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples!(
    "chat backup ./backup.db --store sqlite:./notes.db",
    "chat backup files:/backup/notes --store postgres://agent@localhost/agents",
    "chat backup s3://my-bucket/backup --store sqlite:./notes.db",
))]
pub(crate) struct Backup {
    /// Store that is brought up to date (files:PATH, sqlite:PATH, s3://BUCKET/PREFIX), or, of a SQLite store, a file that must not exist
    #[arg(value_name = "TARGET")]
    target: String,
    /// Progress output on standard error
    #[arg(long, value_enum, default_value = "auto")]
    progress: Progress,
}

impl Backup {
    pub(super) async fn run(self, args: &Args) -> Result<()> {
        let address = args.address()?;
        if self.target.contains(':')
            && let Ok(to) = copy_address(&self.target)
        {
            if address.has_key() && !to.has_key() {
                let text = format!(
                    "{} is encrypted, and its backup in {} would not be; name a key for the backup: `chat backup '{1}?key_file=FILE'`",
                    address.shown(),
                    to.shown()
                );
                return Err(Failure::new(2, "invalid_input", text));
            }
            return Copy::backup(address, to, self.progress).run(args, None).await;
        }
        let file = PathBuf::from(&self.target);
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
                "{} is not a SQLite store, and only SQLite stores are backed up to a file; give a store, such as `chat backup sqlite:{}`, or stop the programs that use the store and copy {copied}",
                address.shown(),
                self.target
            );
            return Err(Failure::new(1, "unsupported", text));
        };
        let store = config.clone().with_create(false).open().await?;
        match store.backup(&file).await {
            Err(error) if *error.kind() == ErrorKind::InvalidInput => {
                return Err(Failure::new(4, "exists", crate::failure::full_text(&error)));
            }
            done => done?,
        }
        let bytes = std::fs::metadata(&file).map_or(0, |meta| meta.len());
        let text =
            format!("backed up all tenants of {} to {} ({bytes} bytes)", address.shown(), file.display());
        Out::new(args.json).result(&json!({"file": file, "bytes": bytes}), &text);
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
