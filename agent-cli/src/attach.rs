//! Files that are attached to the next message.

use std::path::{Path, PathBuf};

use agent_core::Error;
use agent_core::event::{Media, Message, Part};
use agent_core::store::BLOB_MAX_BYTES;
use agent_runtime::Conversation;

use crate::content::Content;
use crate::failure::full_text;

/// File for the next message.
struct Attached {
    path: PathBuf,
    content: Content,
    media_type: String,
    name: Option<String>,
}

/// Files for the next message, in order.
#[derive(Default)]
pub(crate) struct Attachments(Vec<Attached>);

impl Attachments {
    /// Reads a file for its size and hash. Returns its line, as messages show it. A file that is attached again takes its
    /// own place, so that a changed one can be sent.
    ///
    /// # Errors
    ///
    /// A text for the user.
    pub(crate) async fn add(&mut self, path: &Path) -> Result<String, String> {
        let read = Attached::read(path).await;
        let attached = read.map_err(|why| format!("cannot attach {}: {why}", path.display()))?;
        let info = attached.content.info;
        let shown = attached.part(Media::blob(&attached.media_type, info.name, info.bytes));
        match self.0.iter_mut().find(|earlier| earlier.path == attached.path) {
            Some(earlier) => *earlier = attached,
            None => self.0.push(attached),
        }
        Ok(shown.text_view("").map(std::borrow::Cow::into_owned).unwrap_or_default())
    }

    /// Returns whether no file is attached.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all files. Returns their number.
    pub(crate) fn clear(&mut self) -> usize {
        std::mem::take(&mut self.0).len()
    }

    /// Stores the files for a conversation, and returns the message with this text, which may be empty, and the files,
    /// which stay for another attempt.
    pub(crate) async fn message(&self, chat: &Conversation, text: &str) -> agent_core::Result<Message> {
        let mut message = Message::new(text);
        for attached in &self.0 {
            let (media_type, info) = (&attached.media_type, attached.content.info);
            let put = chat.put_media_content(media_type, info, attached.content.open()).await;
            let media = put.map_err(|error| attached.not_stored(error))?;
            message = message.with_part(attached.part(media));
        }
        Ok(message)
    }
}

impl Attached {
    async fn read(path: &Path) -> Result<Self, String> {
        // Opening a pipe would wait for its writer.
        let found = path.metadata().map_err(|error| error.to_string())?;
        if !found.is_file() {
            return Err("it is not a file".to_owned());
        }
        if found.len() > BLOB_MAX_BYTES {
            return Err(format!("it has {} bytes, and a file may have {BLOB_MAX_BYTES}", found.len()));
        }
        let content = Content::of(path, BLOB_MAX_BYTES).await.map_err(|failure| failure.text)?;
        if content.info.bytes == 0 {
            return Err("the file is empty".to_owned());
        }
        let media_type = mime_guess::from_path(path).first_or_octet_stream().essence_str().to_owned();
        // A message refuses a name with control characters.
        let name = path.file_name().map(|name| name.to_string_lossy().replace(char::is_control, "\u{fffd}"));
        Ok(Self { path: path.to_owned(), content, media_type, name })
    }

    /// Returns the error of storing the file, which names it.
    fn not_stored(&self, error: Error) -> Error {
        let path = self.path.display();
        let error = self.content.not_stored(error, &format!("attach it again: /attach {path}"));
        let text = full_text(&error);
        if text.contains(&*path.to_string()) {
            return error;
        }
        Error::new(error.kind().clone(), format!("file {path} cannot be sent: {text}"))
            .with_outcome(error.write_outcome())
    }

    /// Returns the part for the file, by the media type that its name suggests.
    fn part(&self, media: Media) -> Part {
        let media = match &self.name {
            Some(name) => media.with_name(name),
            None => media,
        };
        match self.media_type.split('/').next() {
            Some("image") => Part::Image(media),
            Some("audio") => Part::Audio(media),
            Some("video") => Part::Video(media),
            _ => Part::Resource(media),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use agent_core::MemoryStore;
    use agent_runtime::{AgentBuilder, EchoProvider};

    use super::*;

    async fn chat() -> Conversation {
        let builder = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new());
        builder.build().unwrap().conversation("files").await.unwrap()
    }

    #[tokio::test]
    async fn files_become_parts_of_the_next_message() {
        let (folder, chat) = (tempfile::tempdir().unwrap(), chat().await);
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let mut files = Attachments::default();
        let cat = file("cat.png", b"\x89PNG");
        assert_eq!(files.add(&cat).await.unwrap(), "[image cat.png, image/png, 4 bytes]");
        let line = files.add(&file("notes", &[7; 3 << 20])).await.unwrap();
        assert_eq!(line, "[resource notes, application/octet-stream, 3.0 MiB]");
        let message = files.message(&chat, "What is this?").await.unwrap();
        assert_eq!((message.text.as_str(), message.parts.len()), ("What is this?", 3));
        let media = message.parts[2].media().unwrap();
        assert_eq!(chat.media_bytes(media, 4 << 20).await.unwrap(), vec![7; 3 << 20]);
        // A file that changed since is not sent as something else.
        std::fs::write(&cat, b"\x89GIF").unwrap();
        let refused = files.message(&chat, "And this?").await.unwrap_err().to_string();
        assert!(refused.ends_with(&format!("attach it again: /attach {}", cat.display())), "{refused}");
        files.add(&cat).await.unwrap();
        assert_eq!(files.message(&chat, "And this?").await.unwrap().parts.len(), 3);
        assert_eq!(files.clear(), 2);
        let odd = file("ev\x1b[31mil.png", b"\x89PNG");
        assert_eq!(files.add(&odd).await.unwrap(), "[image ev\u{fffd}[31mil.png, image/png, 4 bytes]");
        let sent = files.message(&chat, "odd").await.unwrap();
        chat.prompt(sent).await.unwrap().finish().await.unwrap();
        assert_eq!(files.clear(), 1);
        assert_eq!(files.message(&chat, "and now?").await.unwrap(), Message::new("and now?"));
    }

    #[tokio::test]
    async fn what_cannot_be_attached_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("empty"), b"").unwrap();
        File::create(path("large")).unwrap().set_len(BLOB_MAX_BYTES + 1).unwrap();
        let mut files = Attachments::default();
        for (name, why) in [
            ("none", "No such file"),
            ("empty", "is empty"),
            ("large", "may have 1073741824"),
            (".", "not a file"),
        ] {
            let refused = files.add(&path(name)).await.unwrap_err();
            assert!(refused.contains(why) && refused.contains("cannot attach"), "{refused}");
        }
        assert_eq!(files.clear(), 0);
    }
}
