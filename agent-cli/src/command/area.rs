//! `chat area`: what all sessions of a workspace share, under names.

use std::path::{Path, PathBuf};

use agent_core::WorkspaceId;
use agent_core::model::Actor;
use agent_core::store::WorkspaceArea;
use agent_runtime::holdings::WorkspaceBlobs;
use clap::{Args, Subcommand};
use serde_json::json;

use super::output::put_bytes;
use super::site::Site;
use crate::bounded::{BLOB_MAX, read};
use crate::failure::Failure;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AreaCommand {
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
    /// Put every file of the folders mcp, skills and memory into the areas of these names; the folders stay as they are
    Import {
        /// The workspace's id
        workspace: WorkspaceId,
        /// Where the folders are: WORKSPACES/ID in a directory of files
        folder: PathBuf,
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
#[derive(Clone, Debug, Args)]
pub(crate) struct Area {
    /// The workspace's id
    workspace: WorkspaceId,
    /// mcp, skills or memory
    area: WorkspaceArea,
}

impl Area {
    fn of(&self, site: &Site<'_>) -> WorkspaceBlobs {
        WorkspaceBlobs::new(&site.storage, &site.effects, self.workspace, self.area)
    }

    fn absent(&self, name: &str) -> Failure {
        Failure::absent(format!("{} of workspace {} has no {name:?}", self.area, self.workspace))
    }
}

impl AreaCommand {
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
                let bytes = read(&file, BLOB_MAX)?;
                let revision = area.of(site).put(&name, &bytes, Actor::USER).await?;
                site.out.result(
                    &json!({"name": name, "revision": revision}),
                    &format!("put {name} as version {revision}"),
                );
            }
            Self::Import { workspace, folder } => import(site, workspace, &folder).await?,
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

/// What is there already as it is in the folder is not written again, so that an import may be repeated.
async fn import(site: &Site<'_>, workspace: WorkspaceId, folder: &Path) -> Result<(), Failure> {
    let (mut items, mut rows) = (Vec::new(), Vec::new());
    for area in WorkspaceArea::ALL {
        let blobs = WorkspaceBlobs::new(&site.storage, &site.effects, workspace, area);
        for (name, file) in files(&folder.join(area.as_str()))? {
            let bytes = read(&file, BLOB_MAX)?;
            if blobs.get(&name).await? != Some(bytes.clone()) {
                blobs.put(&name, &bytes, Actor::USER).await?;
            }
            rows.push(vec![area.to_string(), name.clone()]);
            items.push(json!({"area": area.as_str(), "name": name}));
        }
    }
    if items.is_empty() {
        let text = format!("{} has no files in mcp, skills or memory; nothing was put", folder.display());
        return Err(Failure::absent(text));
    }
    site.out.table(&json!({"items": items}), &["AREA", "NAME"], &rows);
    Ok(())
}

/// The files below a folder, by their names there; none where there is no such folder. Links are not followed.
fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let failed = |path: &Path, error: &std::io::Error| Failure::of_file("read", path, error);
    let no_text = |path: &Path| {
        let why = format!("cannot read {}: its name is no Unicode text; rename it", path.display());
        Failure::new(1, "failed", why)
    };
    let (mut found, mut rest) = (Vec::new(), vec![(String::new(), folder.to_owned())]);
    while let Some((above, path)) = rest.pop() {
        let entries = match std::fs::read_dir(&path) {
            Err(error) if above.is_empty() && error.kind() == std::io::ErrorKind::NotFound => continue,
            other => other.map_err(|error| failed(&path, &error))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| failed(&path, &error))?;
            let kind = entry.file_type().map_err(|error| failed(&entry.path(), &error))?;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| no_text(&entry.path()))?;
            let name = format!("{above}{name}");
            if kind.is_dir() {
                rest.push((format!("{name}/"), entry.path()));
            } else if kind.is_file() {
                found.push((name, entry.path()));
            }
        }
    }
    found.sort();
    Ok(found)
}
