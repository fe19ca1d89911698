//! Confirmation of commands that remove data.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::{Failure, Result};
use crate::pick::Picked;
use crate::visible::visible;

/// Option that confirms in advance.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Consent {
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl Consent {
    /// Refuses `--yes` for a session that was named by its number: another one may have that by now.
    pub(crate) fn refuse_number(&self, session: &Picked) -> Result<()> {
        match self.yes && session.is_numbered {
            true => Err(Failure::new(
                2,
                "invalid_input",
                format!("with --yes give the id, or its end; number of now: {}", session.named()),
            )),
            false => Ok(()),
        }
    }

    /// Asks on a terminal whether to do `what`; without a terminal, refuses unless `--yes` was given.
    pub(crate) fn ask(&self, what: &str) -> Result<()> {
        self.confirm(&format!("{what} removes data permanently"), "add --yes to confirm")
    }

    /// Asks like [`ask`](Self::ask), for what removes nothing, but cannot be undone.
    pub(crate) fn ask_about(&self, what: &str) -> Result<()> {
        self.confirm(&format!("{what} cannot be undone"), "add --yes to confirm")
    }

    /// Asks like [`ask`](Self::ask), for a command with the option `--dry-run`.
    pub(crate) fn ask_or_preview(&self, what: &str) -> Result<()> {
        let remedy = "add --dry-run to see what it would do, or --yes to confirm";
        self.confirm(&format!("{what} removes data permanently"), remedy)
    }

    fn confirm(&self, what: &str, remedy: &str) -> Result<()> {
        if self.yes {
            return Ok(());
        }
        let (stdin, mut stderr) = (io::stdin(), io::stderr());
        if !stdin.is_terminal() || !stderr.is_terminal() {
            let text = format!("{what}; nothing was changed; {remedy}");
            return Err(Failure::new(2, "needs_yes", text));
        }
        let mut answer = String::new();
        let asked = write!(stderr, "{}. Continue? [y/N] ", visible(what)).and_then(|()| stderr.flush());
        let read = asked.and_then(|()| stdin.lock().read_line(&mut answer));
        if read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            return Ok(());
        }
        Err(Failure::new(4, "declined", "not confirmed; nothing was changed"))
    }
}
