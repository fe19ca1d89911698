//! `chat backup`.

use std::path::PathBuf;

use agent_core::ErrorKind;
use serde_json::json;

use super::output::Out;
use crate::args::Args;
use crate::failure::Failure;

/// The copy is checked, and on the disk, before it gets its name; until then it is FILE.<16 digits>.part, which can be deleted
/// if a backup was killed. Nothing that is there is touched. It is a database file like the first: `--store sqlite:FILE`
/// opens it.
///
/// A store in files has no backup of one moment: end the programs that write to it and copy the folder, or copy what is
/// there with `chat copy files:PATH sqlite:FILE`, which reads while others write.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Backup {
    /// The new file, which must not be there yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Backup {
    pub(super) async fn run(self, args: &Args) -> Result<(), Failure> {
        let address = args.address()?;
        let Some(config) = address.database() else {
            return Err(Failure::new(
                1,
                "unsupported",
                format!(
                    "{} is no database file, of which alone there are backups of one moment; end what writes there and copy its folder, or copy what is there with `chat copy FROM sqlite:FILE`",
                    address.shown()
                ),
            ));
        };
        let store = config.clone().with_create(false).open().await?;
        match store.backup(&self.file).await {
            Err(error) if *error.kind() == ErrorKind::InvalidInput => {
                return Err(Failure::new(4, "exists", crate::failure::told(&error)));
            }
            done => done?,
        }
        let bytes = std::fs::metadata(&self.file).map_or(0, |meta| meta.len());
        let text =
            format!("copied all tenants of {} to {}: {bytes} bytes", address.shown(), self.file.display());
        Out::new(args.json).result(&json!({"file": self.file, "bytes": bytes}), &text);
        Ok(())
    }
}
