//! `chat area`: files that all sessions of a workspace share.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use agent_core::WorkspaceId;
use agent_core::model::Actor;
use agent_core::store::{BLOB_MAX_BYTES, WorkspaceArea};
use agent_runtime::files::WorkspaceFiles;
use clap::{Args, Subcommand};
use serde_json::json;

use super::site::Site;
use crate::content::Content;
use crate::failure::{Failure, Result};
use crate::help::examples;
use crate::output::put_content;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AreaCommand {
    /// List the names of the files in an area
    #[command(after_help = examples!("chat area list ID memory"))]
    List {
        #[command(flatten)]
        area: Area,
    },
    /// Write a file of an area to standard output
    #[command(after_help = examples!("chat area get ID memory notes/today.md > today.md"))]
    Get {
        #[command(flatten)]
        area: Area,
        /// File name in the area
        name: String,
    },
    /// Put a file into an area; replaces a file of the same name
    #[command(after_help = examples!("chat area put ID memory notes/today.md ./today.md"))]
    Put {
        #[command(flatten)]
        area: Area,
        /// File name in the area; may contain slashes
        name: String,
        /// File to read; - for standard input
        file: PathBuf,
    },
    /// Put all files of the folders mcp, skills and memory into the areas of the same names
    ///
    /// Files that are equal in the area are not written again. The folders are not changed.
    #[command(after_help = examples!("chat area import ID ./notes/workspaces/ID"))]
    Import {
        /// Workspace id
        workspace: WorkspaceId,
        /// Folder that contains mcp, skills and memory: workspaces/ID in a data folder
        folder: PathBuf,
    },
    /// Delete a file of an area
    #[command(after_help = examples!("chat area delete ID memory notes/today.md"))]
    Delete {
        #[command(flatten)]
        area: Area,
        /// File name in the area
        name: String,
    },
}

/// Area of a workspace.
#[derive(Clone, Debug, Args)]
pub(crate) struct Area {
    /// Workspace id
    workspace: WorkspaceId,
    /// Area: mcp, skills or memory
    area: WorkspaceArea,
}

impl Area {
    fn of(&self, site: &Site<'_>) -> WorkspaceFiles {
        WorkspaceFiles::new(&site.storage, self.workspace, self.area)
    }

    fn absent(&self, name: &str) -> Failure {
        Failure::absent(format!(
            "the area {} of workspace {} has no file {name:?}; `chat area list` lists its files",
            self.area, self.workspace
        ))
    }
}

impl AreaCommand {
    pub(super) async fn run(self, site: &Site<'_>) -> Result<()> {
        match self {
            Self::List { area } => {
                site.storage.workspaces.load(area.workspace).await?;
                let files = area.of(site).list().await?;
                let rows: Vec<_> = files
                    .iter()
                    .map(|file| vec![file.name.clone(), file.content.bytes.to_string()])
                    .collect();
                let items: Vec<_> = files
                    .iter()
                    .map(|file| json!({"name": file.name, "bytes": file.content.bytes, "sha256": file.content.name}))
                    .collect();
                site.out.table(&json!({"items": items}), &["NAME", "BYTES"], &rows);
            }
            Self::Get { area, name } => {
                let file = area.of(site).read(&name).await?;
                put_content(file.ok_or_else(|| area.absent(&name))?.content).await?;
            }
            Self::Put { area, name, file } => {
                let content = Content::of(&file, BLOB_MAX_BYTES).await?;
                let files = area.of(site);
                let put = files.put_content(&name, content.info, || content.open(), Actor::USER);
                let revision = put.await.map_err(|error| content.not_stored(error, "put it again"))?;
                let text = format!("stored {name} as version {revision}");
                site.out.result(&json!({"name": name, "revision": revision}), &text);
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

/// Imports the folders of a workspace. Equal files are not written again, so an import can be repeated.
async fn import(site: &Site<'_>, workspace: WorkspaceId, folder: &Path) -> Result<()> {
    let (mut items, mut rows) = (Vec::new(), Vec::new());
    for area in WorkspaceArea::ALL {
        let area_files = WorkspaceFiles::new(&site.storage, workspace, area);
        let there = area_files.list().await?;
        let there: HashSet<_> = there.iter().map(|file| (file.name.as_str(), file.content)).collect();
        for (name, file) in files(&folder.join(area.as_str()))? {
            let content = Content::of(&file, BLOB_MAX_BYTES).await?;
            if !there.contains(&(name.as_str(), content.info)) {
                let put = area_files.put_content(&name, content.info, || content.open(), Actor::USER).await;
                put.map_err(|error| content.not_stored(error, "import the folder again"))?;
            }
            rows.push(vec![area.to_string(), name.clone()]);
            items.push(json!({"area": area.as_str(), "name": name}));
        }
    }
    if items.is_empty() {
        let text = format!(
            "{} contains no files in mcp, skills or memory; nothing was imported; check the path",
            folder.display()
        );
        return Err(Failure::absent(text));
    }
    site.out.table(&json!({"items": items}), &["AREA", "NAME"], &rows);
    Ok(())
}

/// Returns the files below a folder with their names; none if the folder does not exist. Links are not followed.
fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let failed = |path: &Path, error: &std::io::Error| Failure::of_file("read", path, error);
    let no_text = |path: &Path| {
        let why = format!("cannot read {}: its name is not Unicode text; rename it", path.display());
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
