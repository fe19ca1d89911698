//! `chat area`: what all sessions of a workspace share, under names.

use std::io::Read;
use std::path::{Path, PathBuf};

use agent_core::holdings::{WorkspaceArea, WorkspaceBlobs};
use agent_core::{Actor, WorkspaceId};
use clap::{Args, Subcommand};
use serde_json::json;

use super::output::put_bytes;
use super::{Failure, Site};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the names in an area
    List {
        #[command(flatten)]
        area: Area,
    },
    /// Write what lies under a name to standard output, byte for byte
    Get {
        #[command(flatten)]
        area: Area,
        /// Its name
        name: String,
    },
    /// Put a file under a name, in the place of what was there
    Put {
        #[command(flatten)]
        area: Area,
        /// Its name: names with / between
        name: String,
        /// The file; - is standard input
        file: PathBuf,
    },
    /// Delete what lies under a name
    Delete {
        #[command(flatten)]
        area: Area,
        /// Its name
        name: String,
    },
}

/// An area of a workspace.
#[derive(Debug, Args)]
pub(crate) struct Area {
    /// The workspace's id
    workspace: WorkspaceId,
    /// mcp, skills or memory
    area: WorkspaceArea,
}

impl Area {
    fn of(&self, site: &Site<'_>) -> WorkspaceBlobs {
        site.storage.area(&site.effects, self.workspace, self.area)
    }

    fn absent(&self, name: &str) -> Failure {
        Failure::absent(format!("{} of workspace {} has no {name:?}", self.area, self.workspace))
    }
}

impl Command {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<(), Failure> {
        match self {
            Self::List { area } => {
                site.storage.workspaces.load(area.workspace).await?;
                let names = area.of(site).list().await?;
                let rows: Vec<_> = names.iter().map(|name| vec![name.clone()]).collect();
                site.out.table(&json!({"items": names}), &["NAME"], &rows);
            }
            Self::Get { area, name } => {
                let bytes = area.of(site).get(&name).await?;
                put_bytes(&bytes.ok_or_else(|| area.absent(&name))?);
            }
            Self::Put { area, name, file } => {
                let bytes = read(&file)?;
                let revision = area.of(site).put(&name, &bytes, Actor::USER).await?;
                site.out.result(
                    &json!({"name": name, "revision": revision}),
                    &format!("put {name} as version {revision}"),
                );
            }
            Self::Delete { area, name } => {
                if !area.of(site).delete(&name, Actor::USER).await? {
                    return Err(area.absent(&name));
                }
                site.out.result(&json!({"deleted": name}), &format!("deleted {name}"));
            }
        }
        Ok(())
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = match file == Path::new("-") {
        true => std::io::stdin().lock().read_to_end(&mut bytes).map(drop),
        false => std::fs::read(file).map(|read| bytes = read),
    };
    read.map_err(|error| {
        let code = if error.kind() == std::io::ErrorKind::NotFound { 3 } else { 1 };
        Failure::new(code, "failed", format!("cannot read {}: {error}", file.display()))
    })?;
    Ok(bytes)
}
