//! The page about the state machine, drawn from the table that the code decides by.

use std::fmt::Write;

use agent_core::state::{SessionState, TABLE, Target, TriggerKind, target};

const INTRODUCTION: &str = "# The state machine of a session

<!-- Made by `cargo run -p docs --bin state-machine` from the table in agent-core; not edited by hand. -->

A session is in one state, for one reason. Two conditions are different states only if different events are legal in
them; everything else is a reason. A transition is recorded on the event that caused it, in the same commit, or on a
`session.status_changed` of its own where nothing else explains it. What no row below allows is refused with
`InvalidTransition { from, trigger }` and changes nothing.

An answer (`resolve_action`) is legal before the question's `expires_at` only: if its commit was sealed at that time or
later, by the clock of whoever answers, it is refused with `Expired` and changes nothing. The session waits on in
`requires_action` until `action_timeout` takes it to `queued`: the call is then closed without having been made, and the next
run tells the model so.

`Create` is legal exactly where there is no session. Other words in the table:

| Word | What becomes of the session |
|---|---|
| a state | it goes there |
| stays | the state stays; what came is stored |
| open | `queued` where an input or a timer waits, else `idle` |
| open or asking | `requires_action` where an answer is still awaited, else as *open* |
| open if queued | a queued session goes as *open*, since its inputs may be closed now; any other stays |
| retry | `failed` once the attempts are used up, else `queued` |
| recovered | `initializing` where what it runs on had failed, else as *open* |
| previous | the state before it was archived |
| already | it is so already: a success that writes nothing |
| | refused |

";

/// The page `docs/state-machine.md`.
pub fn page() -> String {
    let mut page = String::from(INTRODUCTION);
    let states: Vec<_> = SessionState::ALL.iter().copied().filter(|s| *s != SessionState::Newer).collect();
    let header: Vec<_> = states.iter().map(|state| format!("`{state}`")).collect();
    line(&mut page, &format!("| Trigger | {} |", header.join(" | ")));
    line(&mut page, &format!("|---{}|", "|---".repeat(states.len())));
    for trigger in TriggerKind::ALL {
        let cells: Vec<_> = states.iter().map(|state| target(*state, *trigger).map_or("", word)).collect();
        if cells.iter().any(|cell| !cell.is_empty()) {
            line(&mut page, &format!("| `{trigger}` | {} |", cells.join(" | ")));
        }
    }
    page.push_str(
        "\nThe same as a picture, without what stays and without the ways to `terminated` and `deleted`:\n\n",
    );
    page.push_str("```mermaid\nstateDiagram-v2\n    [*] --> initializing: create\n");
    for rule in TABLE {
        for from in rule.from {
            for to in ends(rule.target, *from) {
                line(&mut page, &format!("    {from} --> {to}: {}", rule.trigger));
            }
        }
    }
    page.push_str("```\n");
    page
}

fn line(page: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "{line}");
}

fn word(target: Target) -> &'static str {
    match target {
        Target::To(state) => state.as_str(),
        Target::Stay => "stays",
        Target::Open => "open",
        Target::OpenOrAction => "open or asking",
        Target::OpenIfQueued => "open if queued",
        Target::Retry => "retry",
        Target::Recovered => "recovered",
        Target::Previous => "previous",
        Target::Already => "already",
        _ => "?",
    }
}

/// The states that an arrow leads to.
fn ends(target: Target, from: SessionState) -> Vec<SessionState> {
    use SessionState::{Deleted, Failed, Idle, Initializing, Queued, RequiresAction, Terminated};
    let ends = match target {
        Target::To(Terminated | Deleted) => vec![],
        Target::To(state) => vec![state],
        Target::Open => vec![Queued, Idle],
        Target::OpenOrAction => vec![RequiresAction, Queued, Idle],
        Target::OpenIfQueued if from == Queued => vec![Idle],
        Target::Retry => vec![Queued, Failed],
        Target::Recovered => vec![Initializing, Queued, Idle],
        Target::Previous => vec![Idle],
        _ => vec![],
    };
    ends.into_iter().filter(|to| *to != from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the page says is what the code decides by.
    #[test]
    fn state_machine_page_matches_the_table() {
        let stored = std::fs::read_to_string(crate::root().join("docs/state-machine.md")).unwrap();
        assert_eq!(stored, page(), "run `cargo run -p docs --bin state-machine`");
    }
}
