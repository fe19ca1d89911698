//! `chat maintain`: the work that a store has put off.

use serde_json::json;

use crate::args::Args;
use crate::failure::Failure;
use crate::output::{Out, pending};

pub(super) async fn run(args: &Args) -> Result<(), Failure> {
    if args.tenant.is_some() {
        let text = "`chat maintain` is about the whole store, and does not use --tenant";
        return Err(Failure::new(2, "invalid_input", text));
    }
    let store = args.address()?.existing().await?;
    let done = store.maintain().await;
    let closed = store.close().await;
    let done = done?;
    closed?;
    let text = match done.as_slice() {
        [] => "nothing was pending".to_owned(),
        done => done.iter().map(|it| format!("done: {it}")).collect::<Vec<_>>().join("\n"),
    };
    Out::new(args.json).result(&json!({"done": pending(&done)}), &text);
    Ok(())
}
