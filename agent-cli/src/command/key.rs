//! `chat key`: root keys of encrypted stores.

use std::path::PathBuf;

use agent_core::Backend;
use agent_vault::{KeyRing, Vault};
use clap::Subcommand;
use serde_json::json;

use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::help::examples;
use crate::output::Out;
use crate::stores::closing;

/// Commands on root keys.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a root key, in a new file that only you may read
    ///
    /// Name the file in the address of a store that does not exist yet, which is encrypted then: `sqlite:notes.db?key_file=FILE`. Keep a copy of
    /// it apart from the store and its backups: without it, nothing in the store can be read again.
    #[command(after_help = examples!("chat key new ~/notes.key", "chat --store 'sqlite:notes.db?key_file=notes.key'"))]
    New {
        /// File that is created
        file: PathBuf,
    },
    /// Show the id of the root key in a file, as errors name it
    #[command(after_help = examples!("chat key show ~/notes.key"))]
    Show {
        /// File with a root key
        file: PathBuf,
    },
    /// Replace the root key of an encrypted store
    ///
    /// The address names the new key and the former one: `sqlite:notes.db?key_file=NEW&older_key_file=OLD`. Wraps the key of each tenant again, and no
    /// message is written. Afterwards the former key opens the store no more; it still opens backups that were made before.
    #[command(after_help = examples!("chat --store 'sqlite:notes.db?key_file=new.key&older_key_file=notes.key' key rotate"))]
    Rotate {
        /// Also make a new key for each tenant, and wrap the keys of all sessions by it
        #[arg(long)]
        sessions: bool,
    },
}

impl KeyCommand {
    pub(super) async fn run(self, args: &Args) -> Result<()> {
        let out = Out::new(args.json);
        match self {
            Self::New { file } => {
                let ring = KeyRing::generate_file(&file)?;
                let (id, path) = (ring.current_id().to_string(), file.display());
                out.result(
                    &json!({"file": path.to_string(), "key": id}),
                    &format!("key {id} is in {path}; keep a copy of it apart from the store"),
                );
                Ok(())
            }
            Self::Show { file } => {
                let id = KeyRing::from_file(&file)?.current_id().to_string();
                out.result(&json!({"key": id}), &id);
                Ok(())
            }
            Self::Rotate { sessions } => {
                args.refuse_tenant("`chat key rotate` is about the whole store, and does not use --tenant")?;
                let Some(vault) = args.address()?.vault().await else {
                    let text =
                        "the address names no key; write it as sqlite:FILE?key_file=NEW&older_key_file=OLD";
                    return Err(Failure::new(2, "invalid_input", text));
                };
                let vault = vault?;
                let (tenants, keys) = closing(&vault, rotate(&vault, sessions)).await?;
                let text = match (tenants, keys) {
                    (0, None) => "nothing had to be wrapped again".to_owned(),
                    (count, None) => format!("{count} keys were wrapped again"),
                    (count, Some(keys)) => {
                        format!("{count} keys, and those of {keys} sessions, were wrapped again")
                    }
                };
                out.result(&json!({"keys": tenants, "sessions": keys}), &text);
                Ok(())
            }
        }
    }
}

/// Returns the number of keys that were wrapped by the root key, and of those of sessions.
async fn rotate(vault: &Vault, sessions: bool) -> Result<(u64, Option<u64>)> {
    let count = vault.rotate().await?;
    if !sessions {
        return Ok((count, None));
    }
    let (mut keys, mut after) = (0, None);
    loop {
        let page = vault.tenants(after).await?;
        let Some(last) = page.items.last().cloned() else { return Ok((count, Some(keys))) };
        for tenant in &page.items {
            keys += vault.keys(tenant).rotate_tenant_key().await?;
        }
        after = Some(last);
    }
}
