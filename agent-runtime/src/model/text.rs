//! Text of a model's answer, for requests beside a run.

use std::collections::BTreeMap;

use agent_core::Result;
use futures::TryStreamExt;

use crate::model::event::{ModelEvent, PartContent, PartKind, Usage};
use crate::model::provider::{LlmProvider, ModelRequest};

/// Asks a model outside of any run, as for a summary, and returns the text of its answer without its reasoning, and the tokens that it reported.
///
/// Reads at most about `max_bytes` of text: a longer answer is cut there, and the rest of the stream is dropped. Calls of tools are left out. Nothing is
/// stored, and nothing is repeated after an error.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
/// use agent_runtime::context::ModelMessage;
/// use agent_runtime::{EchoProvider, ModelRequest, generate_text};
///
/// let request = ModelRequest::new([ModelMessage::user("Which train goes to Oslo?")]);
/// let (text, _) = generate_text(&EchoProvider::new(), request, 1024).await?;
/// assert_eq!(text, "Which train goes to Oslo?");
/// # Ok(()) }
/// ```
///
/// # Cancel safety
///
/// If the future is dropped, the stream of the answer is, too. There is no limit of time.
///
/// # Errors
///
/// Those of the model.
pub async fn generate_text(
    model: &dyn LlmProvider,
    request: ModelRequest,
    max_bytes: usize,
) -> Result<(String, Usage)> {
    let mut stream = model.generate(request).await?;
    let (mut usage, mut text) = (Usage::default(), String::new());
    let mut parts = BTreeMap::<u32, String>::new();
    while let Some(event) = stream.try_next().await? {
        match event {
            ModelEvent::Text(piece) => text.push_str(&piece),
            ModelEvent::PartStarted { index, kind: PartKind::Text, .. } => {
                parts.insert(index, String::new());
            }
            ModelEvent::Delta { index, text: piece, .. } => {
                if let Some(part) = parts.get_mut(&index) {
                    part.push_str(&piece);
                }
            }
            ModelEvent::PartDone { index, part, .. } => {
                if let PartContent::Text { text: whole, .. } = part.content {
                    parts.insert(index, whole);
                }
            }
            ModelEvent::Usage(used) | ModelEvent::Done { usage: used, .. } => usage = used,
            _ => {}
        }
        if text.len() + parts.values().map(String::len).sum::<usize>() > max_bytes {
            break;
        }
    }
    parts.into_values().for_each(|part| text.push_str(&part));
    text.truncate(text.floor_char_boundary(max_bytes));
    Ok((text, usage))
}
