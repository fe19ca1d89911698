//! Preparation of inputs and outputs for storage: shortening, checks of pictures, redaction.

use std::ops::Range;

use agent_core::BlobName;
use agent_core::event::{FullOutput, Message, ToolResult};

use crate::agent::runtime::AgentRuntime;
use crate::config::ToolPolicy;
use crate::context::{ContextLimits, TEXT_MAX_BYTES, cut_mark, ends, ends_with};
use crate::model::picture::checked;
use crate::run::handle::Input;
use crate::tool::toolbox::text_json;

/// Bytes of an output that are shown in any case.
const PREVIEW_MIN_BYTES: usize = 256;

/// Returns the number of bytes of an output that a model is given, if it is one of `count` of an answer.
pub(crate) fn preview_bytes(limits: &ContextLimits, count: usize) -> usize {
    // The results of an answer share half of the room.
    limits.tool_output_bytes.min(limits.bytes / 2 / count.max(1)).max(PREVIEW_MIN_BYTES)
}

/// Returns the result with the beginning and the end of an output that is longer than `most`, and with the whole beside
/// it. `reads_outputs` says whether the model has the tool that reads the rest.
pub(crate) fn preview(mut result: ToolResult, most: usize, reads_outputs: bool) -> ToolResult {
    if result.output.get().len() <= most || result.full.is_some() {
        return result;
    }
    let text = result.output.to::<String>();
    let media = if text.is_ok() { "text/plain" } else { "application/json" };
    let text = text.unwrap_or_else(|_| result.output.get().to_owned());
    if text.len() > most {
        // The text at the cut is a part of the event: later versions give it to models as it is there.
        result.output = text_json(&if reads_outputs {
            let name = BlobName::of(text.as_bytes());
            ends_with(&text, most, |left_out: Range<usize>| cut_mark(name, left_out, text.len()))
        } else {
            ends(&text, most)
        });
        result.full = Some(FullOutput::text(text).with_media_type(media));
    }
    result
}

impl AgentRuntime {
    /// Returns a message of a person as it is stored: [fitted](Self::fitted), and marked if the model can read the rest.
    fn fitted_input(&self, message: Message) -> Message {
        let is_set = message.shown.is_some();
        let mut message = self.fitted(message);
        message.readable |=
            !is_set && message.shown.is_some() && self.reads_outputs(&self.shared.config.tool_policies, 1);
        message
    }

    /// Returns the message, with the number of bytes that a model is shown of a long text: at most half of the room.
    pub(crate) fn fitted(&self, mut message: Message) -> Message {
        let half = self.shared.config.limits.context.bytes / 2;
        if message.shown.is_none() && message.text.len() > half.min(TEXT_MAX_BYTES) {
            message.shown = Some(message.text.floor_char_boundary(half) as u64);
        }
        message
    }

    /// Returns the input with a message that fits, see [`fitted`](Self::fitted), and whose pictures are what their bytes
    /// show.
    pub(crate) fn fit_input(&self, mut input: Input) -> Input {
        input.message.parts.iter_mut().for_each(checked);
        Input { message: self.fitted_input(input.message), ..input }
    }

    /// Returns a result that comes from outside as it is stored: without the values of secrets, and shortened.
    pub(crate) fn fit_result(&self, mut result: ToolResult) -> ToolResult {
        let config = self.config();
        result.content.iter_mut().for_each(checked);
        // A part of a value is not recognized.
        result.output = self.redact_json(result.output);
        let most = preview_bytes(&config.limits.context, 1);
        let reads_outputs = self.reads_outputs(&config.tool_policies, result.output.get().len());
        preview(result, most, reads_outputs)
    }

    /// Returns whether a model is offered the tool that reads outputs, and the store has a blob for one of this size.
    pub(crate) fn reads_outputs(
        &self,
        policies: &std::collections::BTreeMap<String, ToolPolicy>,
        bytes: usize,
    ) -> bool {
        self.shared.tools.reads_outputs(policies) && bytes as u64 <= self.blob_max_bytes()
    }

    /// Returns the maximum size of a blob; 0 in a store without blobs.
    pub(crate) fn blob_max_bytes(&self) -> u64 {
        self.storage.sessions.capabilities().blob_max_bytes
    }
}
