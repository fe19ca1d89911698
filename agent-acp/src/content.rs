//! Content of prompts as messages of a session, and parts of a session as content of updates.

use agent_client_protocol::v1::schema::{
    AudioContent, BlobResourceContents, ContentBlock, EmbeddedResource, EmbeddedResourceResource,
    ImageContent, ResourceLink, TextContent,
};
use agent_client_protocol::{Error, Result};
use agent_core::event::{Media, MediaSource, Message, Part};
use agent_core::json::RawJson;
use agent_runtime::Conversation;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tracing::warn;

use crate::fault;

/// Maximum bytes of a medium in an update; a line of text stands for a larger one.
const MEDIUM_MAX_BYTES: usize = 16 << 20;

/// Media type of a link that names none.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// Field of a medium that keeps the address of its resource.
const URI: &str = "uri";

/// Returns the message of a prompt. The bytes of its media are put into the session first.
///
/// # Errors
///
/// An error of the protocol that names the block.
pub(crate) async fn message(chat: &Conversation, blocks: Vec<ContentBlock>) -> Result<Message> {
    let mut parts = Vec::with_capacity(blocks.len());
    for (at, block) in blocks.into_iter().enumerate() {
        parts.push(part(chat, at, block).await?);
    }
    // One without a text and without media is refused when it is stored.
    Ok(Message::of_parts(parts))
}

async fn part(chat: &Conversation, at: usize, block: ContentBlock) -> Result<Part> {
    Ok(match block {
        ContentBlock::Text(text) => Part::text(text.text),
        ContentBlock::Image(image) => {
            let media = put(chat, at, &image.mime_type, &image.data).await?;
            Part::Image(with_uri(media, image.uri.as_deref()))
        }
        ContentBlock::Audio(audio) => Part::Audio(put(chat, at, &audio.mime_type, &audio.data).await?),
        ContentBlock::ResourceLink(link) => {
            let media_type = link.mime_type.as_deref().unwrap_or(UNKNOWN_TYPE);
            Part::ResourceLink(Media::uri(media_type, link.uri).with_name(link.name))
        }
        ContentBlock::Resource(embedded) => match embedded.resource {
            // Every model reads a text; few take files.
            EmbeddedResourceResource::TextResourceContents(file) => {
                Part::text(format!("<resource uri={:?}>\n{}\n</resource>", file.uri, file.text))
            }
            EmbeddedResourceResource::BlobResourceContents(file) => {
                let media_type = file.mime_type.as_deref().unwrap_or(UNKNOWN_TYPE);
                let media = put(chat, at, media_type, &file.blob).await?;
                let name = file.uri.rsplit('/').next().filter(|name| !name.is_empty());
                let media = with_uri(media, Some(&file.uri));
                Part::Resource(name.map_or(media.clone(), |name| media.with_name(name)))
            }
            _ => return Err(unknown(at)),
        },
        _ => return Err(unknown(at)),
    })
}

fn unknown(at: usize) -> Error {
    fault::invalid(format!("block {at} of the prompt has a type that this agent does not take"))
}

/// Puts the bytes of a medium into the session.
async fn put(chat: &Conversation, at: usize, media_type: &str, data: &str) -> Result<Media> {
    let bytes = STANDARD
        .decode(data)
        .map_err(|error| fault::invalid(format!("block {at} of the prompt is not valid base64: {error}")))?;
    if bytes.is_empty() {
        return Err(fault::invalid(format!("block {at} of the prompt has no bytes; leave it out")));
    }
    chat.put_media(media_type, bytes).await.map_err(fault::of_store(Some(chat.id())))
}

fn with_uri(media: Media, uri: Option<&str>) -> Media {
    match uri.and_then(|uri| RawJson::of(&uri).ok()) {
        Some(uri) => media.with_extra(URI, uri),
        None => media,
    }
}

/// Returns the blocks of a message: its text, or its parts in their order.
pub(crate) async fn blocks(chat: &Conversation, message: &Message) -> Vec<ContentBlock> {
    if message.parts.is_empty() {
        return vec![text(&message.text)];
    }
    let mut blocks = Vec::with_capacity(message.parts.len());
    for part in &message.parts {
        blocks.extend(block(chat, part, &message.text).await);
    }
    blocks
}

/// Returns the block of a part; `None` for a part that nobody reads. `whole` is the text of its message.
pub(crate) async fn block(chat: &Conversation, part: &Part, whole: &str) -> Option<ContentBlock> {
    if let Some(media) = part.media()
        && let Some(block) = medium(chat, part, media).await
    {
        return Some(block);
    }
    part.text_view(whole).map(|line| text(&line))
}

pub(crate) fn text(text: &str) -> ContentBlock {
    ContentBlock::Text(TextContent::new(text))
}

async fn medium(chat: &Conversation, part: &Part, media: &Media) -> Option<ContentBlock> {
    let name = media.name.as_deref();
    if let MediaSource::Uri(uri) = &media.source {
        let link = ResourceLink::new(name.unwrap_or(uri), uri.as_str());
        return Some(ContentBlock::ResourceLink(link.mime_type(media.media_type.clone())));
    }
    let bytes = match chat.media_bytes(media, MEDIUM_MAX_BYTES).await {
        Ok(bytes) => bytes,
        Err(error) => {
            warn!(session = %chat.id(), %error, "a line of text stands for a medium in an update");
            return None;
        }
    };
    let (data, media_type) = (STANDARD.encode(bytes), media.media_type.as_str());
    let uri = media.extra.get(URI).and_then(|uri| uri.to::<String>().ok());
    Some(match part {
        Part::Image(_) => ContentBlock::Image(ImageContent::new(data, media_type).uri(uri)),
        Part::Audio(_) => ContentBlock::Audio(AudioContent::new(data, media_type)),
        _ => {
            let uri = uri.unwrap_or_else(|| name.unwrap_or("resource").to_owned());
            let file = BlobResourceContents::new(data, uri).mime_type(media_type.to_owned());
            ContentBlock::Resource(EmbeddedResource::new(EmbeddedResourceResource::BlobResourceContents(
                file,
            )))
        }
    })
}
