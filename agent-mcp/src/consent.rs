//! Permissions of a session: tools that run without a question, each with the digest that was allowed. Also holds the
//! digests of the tools that the session was offered.

use std::collections::BTreeMap;

use agent_core::commit::Precondition;
use agent_core::model::{Actor, Role};
use agent_core::{Error, ErrorKind, Result};
use agent_runtime::documents::{Document, DocumentWrite, Documents};

/// Name of the document of a session that holds its permissions.
pub(crate) const PERMISSIONS: &str = "mcp.permissions";
/// Name of the document of a session that holds the digests of the tools that it was offered.
pub(crate) const OFFERED: &str = "mcp.offered";
/// Format of its text: an object of names of tools with their digests.
const FORMAT: u32 = 1;
/// Maximum number of permissions of a session.
pub(crate) const MAX: usize = 1024;
/// Maximum number of attempts of a write, if other writers interfere.
const ATTEMPTS: usize = 16;

/// Digests that were allowed, by the name of the tool.
pub(crate) type Permissions = BTreeMap<String, String>;

/// Reads the digests in a document of a session; none if it has no such document.
///
/// # Errors
///
/// Errors of the store; `Corrupt` or `Unsupported` if the document cannot be read.
pub(crate) async fn read(documents: &Documents, name: &str) -> Result<Permissions> {
    documents.get(name).await?.as_ref().map_or_else(|| Ok(Permissions::new()), parse)
}

/// Stores the digests of the tools that a session is offered.
///
/// # Errors
///
/// Errors of the store.
pub(crate) async fn set_offered(documents: &Documents, digests: &Permissions) -> Result<()> {
    let text = agent_core::json::to_text(digests);
    documents.put(DocumentWrite::new(OFFERED, text, Actor::SYSTEM).with_format(FORMAT)).await.map(drop)
}

fn parse(document: &Document) -> Result<Permissions> {
    if document.by.role() == Role::Agent {
        // A tool that writes documents must not let the model allow itself anything.
        return Ok(Permissions::new());
    }
    if document.format > FORMAT {
        let text = format!(
            "document {} has format {}, of a newer version; update agent-mcp",
            document.name, document.format
        );
        return Err(Error::unsupported(text));
    }
    serde_json::from_str(&document.text)
        .map_err(|_| Error::corrupt(format!("document {} holds no digests; remove it", document.name)))
}

/// Sets the digest that is allowed of a tool; `None` removes the permission.
///
/// # Errors
///
/// Errors of the store; `LimitExceeded` if the session has 1,024 permissions.
pub(crate) async fn set(documents: &Documents, tool: &str, digest: Option<&str>, by: &Actor) -> Result<()> {
    let mut attempts = ATTEMPTS;
    loop {
        let document = documents.get(PERMISSIONS).await?;
        let mut permissions = document.as_ref().map_or_else(|| Ok(Permissions::new()), parse)?;
        match digest {
            Some(digest) => permissions.insert(tool.to_owned(), digest.to_owned()),
            None => permissions.remove(tool),
        };
        if permissions.len() > MAX {
            let text = format!("a session has at most {MAX} permissions for MCP tools; remove others first");
            return Err(Error::limit(text));
        }
        let expect =
            document.map_or(Precondition::MustNotExist, |document| Precondition::Matches(document.revision));
        let text = agent_core::json::to_text(&permissions);
        let write =
            DocumentWrite::new(PERMISSIONS, text, by.clone()).with_format(FORMAT).with_precondition(expect);
        match documents.put(write).await {
            Err(error) if matches!(error.kind(), ErrorKind::Conflict { .. }) && attempts > 1 => attempts -= 1,
            written => return written.map(drop),
        }
    }
}
