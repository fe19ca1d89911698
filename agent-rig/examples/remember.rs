//! An agent of rig whose conversations are kept in files: `remember FOLDER KEY TEXT` goes on with the conversation of a key.
//!
//! ```sh
//! MODEL_KEY=… cargo run -p agent-rig --example remember -- anthropic/claude-opus-5-5 data support/4711 "I am Alice."
//! MODEL_KEY=… cargo run -p agent-rig --example remember -- anthropic/claude-opus-5-5 data support/4711 "Who am I?"
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::error::Error;
use std::process::ExitCode;

use agent_core::{Backend, Storage, TenantId};
use agent_rig::RigMemory;
use agent_rig::rig_core::DynModel;
use agent_rig::rig_core::operation::Completion;
use agent_rig::rig_core::providers::registry;
use agent_storage_fs::FsConfig;
use rig_agent::agent::AgentBuilder;

/// Answers one prompt in the conversation of `key`. The memory is one line, and the store any of ours.
pub(crate) async fn answer(
    model: DynModel<Completion>,
    storage: Storage,
    key: &str,
    text: &str,
) -> Result<String, Box<dyn Error + Send + Sync>> {
    let agent = AgentBuilder::new(model)
        .preamble("Be brief.")
        .memory(RigMemory::new(storage))
        .conversation(key)
        .build();
    Ok(agent.prompt(text).await?.output().to_string())
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let ([model, folder, key, text], Ok(secret)) = (&arguments[..], std::env::var("MODEL_KEY")) else {
        eprintln!("set MODEL_KEY, and name VENDOR/MODEL FOLDER KEY TEXT");
        return ExitCode::from(2);
    };
    let answered = async {
        let backend = FsConfig::new(folder).open().await?;
        let storage = backend.tenant(&TenantId::default());
        let messages = answer(registry::connect(&**model, secret)?, storage.clone(), key, text).await?;
        storage.close().await?;
        Ok::<_, Box<dyn Error + Send + Sync>>(messages)
    };
    match answered.await {
        Ok(messages) => {
            println!("{messages}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
