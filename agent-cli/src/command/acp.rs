//! Service for an editor, over standard input and output.

use crate::args::Args;
use crate::failure::{Failure, Result};

/// Options of the service.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Acp {
    /// Ask the user of the editor before each call of a tool
    #[arg(long)]
    ask: bool,
}

#[cfg(not(feature = "acp"))]
impl Acp {
    /// Says how to build a program that has the command.
    #[allow(clippy::unused_async, reason = "the command waits if the program has it")]
    pub(crate) async fn run(self, _: &Args) -> Result<u8> {
        let options = if self.ask { " --ask" } else { "" };
        let text = format!(
            "acp{options}: this program was built without the Agent Client Protocol; build it with `cargo build --bin \
             chat --features acp`"
        );
        Err(Failure::new(1, "unsupported", text))
    }
}

#[cfg(feature = "acp")]
impl Acp {
    /// Serves until the input ends, or a signal does. Returns the exit code.
    pub(crate) async fn run(self, args: &Args) -> Result<u8> {
        use std::time::Duration;

        use agent_runtime::ToolMode;
        use tokio::signal::unix::{SignalKind, signal};

        let device = args.device()?;
        let mode = if self.ask { ToolMode::Confirm } else { ToolMode::Direct };
        let crate::chat::ChatContext { agent, servers, .. } = crate::open::agent(args, &device, mode).await?;
        let mut interrupts = signal(SignalKind::interrupt()).map_err(Failure::other)?;
        let mut terminations = signal(SignalKind::terminate()).map_err(Failure::other)?;
        let served = agent_acp::AcpAgent::new(agent.clone())
            .with_device(device)
            .with_info("chat", env!("CARGO_PKG_VERSION"));
        let served = servers.serve_of_clients(served);
        let ended = tokio::select! {
            ended = served.serve(tokio::io::stdin(), tokio::io::stdout()) => ended.map(|()| 0),
            _ = interrupts.recv() => Ok(130),
            _ = terminations.recv() => Ok(143),
        };
        let closed = agent.shutdown(Duration::ZERO).await.and(agent.storage().close().await);
        let code = ended?;
        closed?;
        Ok(code)
    }
}
