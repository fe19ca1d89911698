//! Results of servers as outputs of tools.

use std::collections::BTreeSet;

use agent_core::event::{Media, Part};
use agent_core::json::RawJson;
use agent_core::{Error, ErrorKind, Result};
use agent_runtime::ToolOutput;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, ServerResult};
use serde_json::Value;

use crate::tool::cut;

/// Maximum number of parts of a result.
const PARTS_MAX: usize = 256;
/// Maximum bytes of data that is kept beside a text.
const STRUCTURED_MAX_BYTES: usize = 64 << 10;
/// Maximum bytes of the text of a failure.
const FAILURE_MAX_BYTES: usize = 64 << 10;
/// Maximum bytes of a name.
const NAME_MAX_BYTES: usize = 200;
/// Maximum bytes of an address.
const URI_MAX_BYTES: usize = 8 << 10;
/// Media type of data of which none is known.
const BYTES: &str = "application/octet-stream";

/// Returns the output of a call.
///
/// # Errors
///
/// `Provider` if the tool reports a failure, with its text; if the server gives something that is no result.
pub(crate) fn output(server: &str, result: ServerResult) -> Result<ToolOutput> {
    let mut read = Reader::default();
    let (structured, is_error) = match result {
        ServerResult::CallToolResult(CallToolResult { content, structured_content, is_error, .. }) => {
            content.into_iter().for_each(|block| read.block(block));
            (structured_content, is_error == Some(true))
        }
        ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_) => (None, false),
        // With a kind of content that the protocol crate does not know, or a wrong one among good ones.
        ServerResult::CustomResult(custom) => {
            let Value::Object(mut members) = custom.0 else { return Err(no_result(server)) };
            let Some(Value::Array(blocks)) = members.remove("content") else { return Err(no_result(server)) };
            for block in blocks {
                match serde_json::from_value(block) {
                    Ok(block) => read.block(block),
                    Err(_) => read.leave_out("content of an unknown kind"),
                }
            }
            (members.remove("structuredContent"), members.get("isError") == Some(&Value::Bool(true)))
        }
        _ => return Err(no_result(server)),
    };
    read.finish(structured, is_error)
}

fn no_result(server: &str) -> Error {
    let text = format!("MCP server {server} answered with something that is no result; the call was made");
    Error::new(ErrorKind::Provider, text)
}

#[derive(Default)]
struct Reader {
    texts: Vec<String>,
    parts: Vec<Part>,
    /// What was left out.
    left_out: BTreeSet<String>,
}

impl Reader {
    fn block(&mut self, block: ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.texts.push(text.text),
            ContentBlock::Image(image) => self.media(&image.mime_type, &image.data, "image", Part::Image),
            ContentBlock::Audio(audio) => self.media(&audio.mime_type, &audio.data, "audio", Part::Audio),
            ContentBlock::Resource(embedded) => self.resource(embedded.resource),
            ContentBlock::ResourceLink(link) => {
                let media_type = link.mime_type.filter(|media_type| is_media_type(media_type));
                let (uri, name) = (clean(&link.uri, URI_MAX_BYTES), clean(&link.name, NAME_MAX_BYTES));
                if uri.is_empty() {
                    return self.leave_out("a link without an address");
                }
                let media = Media::uri(media_type.unwrap_or_else(|| BYTES.to_owned()), uri);
                self.part(Part::ResourceLink(if name.is_empty() { media } else { media.with_name(name) }));
            }
            _ => self.leave_out("content of an unknown kind"),
        }
    }

    fn resource(&mut self, resource: ResourceContents) {
        match resource {
            // Models are given the bytes of a resource in a result by no provider, and its text by all.
            ResourceContents::TextResourceContents { uri, text, .. } => {
                self.texts.push(format!("[resource {}]\n{text}", clean(&uri, URI_MAX_BYTES)));
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let uri = clean(&uri, URI_MAX_BYTES);
                let media_type = mime_type.filter(|media_type| is_media_type(media_type));
                let media_type = media_type.unwrap_or_else(|| BYTES.to_owned());
                self.media(&media_type, &blob, "resource", |media| {
                    Part::Resource(match uri.as_str() {
                        "" => media,
                        uri => {
                            media.with_name(cut(uri, NAME_MAX_BYTES)).with_extra("uri", RawJson::sure(&uri))
                        }
                    })
                });
            }
            _ => self.leave_out("a resource of an unknown kind"),
        }
    }

    fn media(&mut self, media_type: &str, data: &str, kind: &str, part: impl FnOnce(Media) -> Part) {
        match STANDARD.decode(data.trim()) {
            Ok(bytes) if !bytes.is_empty() && is_media_type(media_type) => {
                self.part(part(Media::inline(media_type, bytes)));
            }
            _ => self.leave_out(&format!("{kind} without a media type or with broken data")),
        }
    }

    fn part(&mut self, part: Part) {
        match self.parts.len() {
            PARTS_MAX => self.leave_out("further parts"),
            0..PARTS_MAX => self.parts.push(part),
            _ => {}
        }
    }

    fn leave_out(&mut self, what: &str) {
        // Each once: a server can repeat a short part often.
        if self.left_out.insert(what.to_owned()) {
            self.texts.push(format!("[left out: {what}]"));
        }
    }

    fn finish(self, structured: Option<Value>, is_error: bool) -> Result<ToolOutput> {
        let text = self.texts.join("\n");
        if is_error {
            let text = match cut(&text, FAILURE_MAX_BYTES) {
                "" => "the tool failed, and does not say why",
                text => text,
            };
            return Err(Error::new(ErrorKind::Provider, text));
        }
        let structured = structured.and_then(|structured| RawJson::of(&structured).ok());
        let mut output = match structured {
            Some(structured) if text.is_empty() && self.parts.is_empty() => ToolOutput::new(structured),
            Some(structured) if structured.get().len() <= STRUCTURED_MAX_BYTES => {
                ToolOutput::new(RawJson::of(&text)?).with_structured(structured)
            }
            _ => ToolOutput::new(RawJson::of(&text)?),
        };
        output.content = self.parts;
        Ok(output)
    }
}

/// Returns a text on one line, cut.
fn clean(text: &str, most: usize) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    cut(&plain, most).to_owned()
}

/// Returns whether the log takes this media type.
fn is_media_type(text: &str) -> bool {
    let essence = text.split(';').next().unwrap_or_default();
    let is_plain = |half: &str| !half.trim().is_empty() && !half.contains('/');
    text.len() <= 255
        && text.is_ascii()
        && !text.chars().any(char::is_control)
        && essence.split_once('/').is_some_and(|(kind, subtype)| is_plain(kind) && is_plain(subtype))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::event::{EventPayload, MediaSource, ToolOutcome, ToolResult};
    use serde_json::json;

    fn read(result: Value) -> Result<ToolOutput> {
        output("srv", serde_json::from_value(result).unwrap())
    }

    fn text(output: &ToolOutput) -> String {
        output.output.to().unwrap()
    }

    #[test]
    fn every_kind_of_content_is_mapped() {
        let output = read(json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "iVBORw==", "mimeType": "image/png"},
            {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAEC"}},
            {"type": "resource_link", "uri": "https://example.com/x", "name": "x", "mimeType": "text/html"},
            {"type": "text", "text": "two"},
        ], "structuredContent": {"n": 1}}))
        .unwrap();
        assert_eq!(text(&output), "one\n[resource file:///a.txt]\ninside\ntwo");
        assert_eq!(output.structured.as_ref().unwrap().get(), r#"{"n":1}"#);
        let tags: Vec<_> = output.content.iter().map(|part| part.tag().into_owned()).collect();
        assert_eq!(tags, ["image", "audio", "resource", "resource_link"]);
        let source = |at: usize| &output.content[at].media().unwrap().source;
        assert_eq!(*source(0), MediaSource::Inline(b"\x89PNG".as_slice().into()));
        assert_eq!(*source(2), MediaSource::Inline([0, 1, 2].as_slice().into()));
        assert_eq!(*source(3), MediaSource::Uri("https://example.com/x".to_owned()));
    }

    #[test]
    fn structured_content_alone_is_the_output() {
        let output = read(json!({"content": [], "structuredContent": {"n": [1, 2]}})).unwrap();
        assert_eq!((output.output.get(), output.structured), (r#"{"n":[1,2]}"#, None));
        let large =
            json!({"content": [{"type": "text", "text": "t"}], "structuredContent": "x".repeat(70_000)});
        let output = read(large).unwrap();
        assert_eq!((text(&output).as_str(), output.structured), ("t", None));
        assert_eq!(text(&read(json!({"content": []})).unwrap()), "");
    }

    #[test]
    fn failures_are_errors_with_their_text() {
        let error = read(json!({"content": [{"type": "text", "text": "no such city"}], "isError": true}))
            .unwrap_err();
        assert_eq!((error.to_string().as_str(), error.kind()), ("no such city", &ErrorKind::Provider));
        let error = read(json!({"content": [], "isError": true})).unwrap_err();
        assert!(error.to_string().contains("does not say why"));
        let long = json!({"content": [{"type": "text", "text": "é".repeat(100_000)}], "isError": true});
        assert!(read(long).unwrap_err().to_string().len() <= 64 << 10);
    }

    #[test]
    fn lies_in_a_result_become_notes() {
        let output = read(json!({"content": [
            {"type": "image", "data": "***", "mimeType": "image/png"},
            {"type": "image", "data": "", "mimeType": "image/png"},
            {"type": "image", "data": "iVBORw==", "mimeType": "png\n"},
            {"type": "resource_link", "uri": "\n", "name": ""},
            {"type": "hologram", "depth": 3},
            {"type": "text", "text": "kept"},
        ]}))
        .unwrap();
        let text = text(&output);
        assert!(text.ends_with("\nkept") && text.matches("left out").count() == 3, "{text}");
        assert!(output.content.is_empty());
        assert!(read(json!({"tools": []})).is_err());
        assert!(read(json!({"content": "none"})).is_err());
    }

    #[test]
    fn notes_are_not_repeated() {
        let pair =
            [json!({"type": "hologram"}), json!({"type": "image", "data": "", "mimeType": "image/png"})];
        let many: Vec<_> = pair.iter().cycle().take(100_000).collect();
        assert_eq!(text(&read(json!({ "content": many })).unwrap()).matches("left out").count(), 2);
    }

    #[test]
    fn what_is_kept_can_be_stored() {
        let many: Vec<_> = (0..400)
            .map(|at| json!({"type": "resource_link", "uri": format!("u:{at}\u{7}"), "name": "n\u{0}".repeat(300)}))
            .collect();
        let output = read(json!({ "content": many })).unwrap();
        assert_eq!((output.content.len(), text(&output).as_str()), (256, "[left out: further parts]"));
        let mut result = ToolResult::new("c".parse().unwrap(), ToolOutcome::Ok, output.output);
        result.content = output.content;
        EventPayload::AgentToolResult(result).check().unwrap();
    }
}
