//! `chat maintain`: the work that a store has put off.

use serde_json::json;

use crate::args::Args;
use crate::failure::Result;
use crate::output::{Out, pending};
use crate::stores::closing;

pub(super) async fn run(args: &Args) -> Result<()> {
    args.refuse_tenant("`chat maintain` is about the whole store, and does not use --tenant")?;
    let store = args.address()?.existing().await?;
    let done = closing(&*store, async { Ok(store.maintain().await?) }).await?;
    let text = match done.as_slice() {
        [] => "nothing was pending".to_owned(),
        done => done.iter().map(|it| format!("done: {it}")).collect::<Vec<_>>().join("\n"),
    };
    Out::new(args.json).result(&json!({"done": pending(&done)}), &text);
    Ok(())
}
