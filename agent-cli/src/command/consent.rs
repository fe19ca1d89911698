//! What removes much is done only if somebody said so.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::Failure;

/// The option by which somebody says so beforehand.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Consent {
    /// Do it without asking
    #[arg(long)]
    yes: bool,
}

impl Consent {
    /// Asks on a terminal whether to do `what`; refuses elsewhere, unless `--yes` was given.
    pub(crate) fn ask(&self, what: &str) -> Result<(), Failure> {
        if self.yes {
            return Ok(());
        }
        let (stdin, mut stderr) = (io::stdin(), io::stderr());
        if !stdin.is_terminal() || !stderr.is_terminal() {
            let text = format!(
                "{what} removes data for good; say --yes, or look first with --dry-run if there is one"
            );
            return Err(Failure::new(2, "needs_yes", text));
        }
        let mut answer = String::new();
        let asked =
            write!(stderr, "{what} removes data for good. Go on? [y/N] ").and_then(|()| stderr.flush());
        let read = asked.and_then(|()| stdin.lock().read_line(&mut answer));
        if read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            return Ok(());
        }
        Err(Failure::new(4, "declined", "nothing was removed"))
    }
}
