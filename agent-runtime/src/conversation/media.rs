//! Media and outputs of a conversation: the bytes that are blobs of its session.

use std::ops::Range;

use agent_core::event::{FullOutput, Media, MediaSource, ToolResult};
use agent_core::state::SessionState;
use agent_core::store::{BlobContent, BlobInfo, BlobStream, PutBlob, ReadBlob};
use agent_core::{BlobName, Error, ErrorKind, Result};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};

use crate::conversation::handle::Conversation;
use crate::model::media::open_blob;
use crate::model::picture::{LOOKED_AT_BYTES, is_checked, shown_type};
use agent_workspace::blobs::{INLINE_MAX_BYTES, Spool};

impl Conversation {
    /// Stores bytes for a message of this conversation, and returns them as a medium.
    ///
    /// More than 1 KiB are stored as a [blob](agent_core::store::BlobStore::put) of the session, which the message then names; in a
    /// store without blobs, they are part of the message. A blob that no message names is removed by a garbage collection.
    /// A message with a medium that is [inline](Media::inline) does the same when it is committed; this method lets several
    /// messages name one blob.
    ///
    /// A type like `image/png` that the first bytes contradict is replaced by the type that they show, because providers refuse
    /// such a picture. The values of secrets are [redacted](agent_workspace::secrets) before the bytes are stored, whatever their type.
    ///
    /// A model is given the bytes of media of up to 32 MiB, and of 64 MiB in one request; a line of text stands for larger
    /// ones.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_core::event::{Message, Part};
    ///
    /// let cat = chat.put_media("image/jpeg", [&b"\xff\xd8\xff"[..], &[7; 2_999_997]].concat()).await?.with_name("cat.jpg");
    /// let asked = Message::new("What is this?").with_part(Part::Image(cat.clone()));
    /// chat.prompt(asked).await?.finish().await?;
    /// assert_eq!(chat.media_bytes(&cat, 4 << 20).await?.len(), 3_000_000);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`BlobStore::put`](agent_core::store::BlobStore::put).
    pub async fn put_media(&self, media_type: impl Into<String>, bytes: impl Into<Bytes>) -> Result<Media> {
        let (media_type, mut bytes) = (media_type.into(), bytes.into());
        if let Some(secrets) = &self.runtime().secrets {
            bytes = secrets.redact_bytes(&bytes).unwrap_or(bytes);
        }
        let info = BlobInfo::of(&bytes);
        self.put_redacted(media_type, info, stream::iter([Ok(bytes)]).boxed()).await
    }

    /// Stores content of any size for a message, like [`put_media`](Self::put_media), and holds at most 4 MiB of it in
    /// memory.
    ///
    /// `info` comes from a first reading of the content, for example by [`BlobInfo::of_stream`]. If the agent has
    /// [secrets](agent_workspace::secrets), the content is copied as
    /// [`put_media_stream`](Self::put_media_stream) does, and the medium may have another name and size.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_core::store::BlobInfo;
    /// use futures::{StreamExt, stream};
    ///
    /// let content = || stream::iter((0..8).map(|_| Ok(vec![7; 1 << 20].into()))).boxed();
    /// let info = BlobInfo::of_stream(content()).await?;
    /// let film = chat.put_media_content("video/mp4", info, content()).await?;
    /// assert_eq!(film.source.size_bytes(), Some(8 << 20));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`BlobStore::put`](agent_core::store::BlobStore::put); `LimitExceeded` for content that does not fit in an event, in a store without
    /// blobs.
    pub async fn put_media_content(
        &self,
        media_type: impl Into<String>,
        info: BlobInfo,
        content: BlobStream,
    ) -> Result<Media> {
        let media_type = media_type.into();
        if self.runtime().secrets.is_some() {
            return self.put_media_stream(media_type, content).await;
        }
        self.put_redacted(media_type, info, content).await
    }

    /// Stores content that can be read once, of any size, for a message, like [`put_media`](Self::put_media).
    ///
    /// The name of a blob is the hash of its bytes, which must be known first: the content is copied to a temporary file
    /// without a name. The values of [secrets](agent_workspace::secrets) are redacted before that,
    /// also one that is divided between two pieces; in such a stream, a value is found as it is and as it is written in
    /// JSON.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use futures::{StreamExt, stream};
    ///
    /// let upload = stream::iter((0..8).map(|_| Ok(vec![7; 1 << 20].into()))).boxed();
    /// let film = chat.put_media_stream("video/mp4", upload).await?;
    /// assert_eq!(film.source.size_bytes(), Some(8 << 20));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the content and of [`put_media_content`](Self::put_media_content); `Full` or `Unavailable` if the temporary
    /// file cannot be written.
    pub async fn put_media_stream(
        &self,
        media_type: impl Into<String>,
        content: BlobStream,
    ) -> Result<Media> {
        let media_type = media_type.into();
        let content = match &self.runtime().secrets {
            Some(secrets) => secrets.redact_stream(content),
            None => content,
        };
        let spool = Spool::copy(content).await?;
        self.put_redacted(media_type, spool.blob(), spool.into_content()).await
    }

    async fn put_redacted(
        &self,
        mut media_type: String,
        info: BlobInfo,
        mut content: BlobStream,
    ) -> Result<Media> {
        if is_checked(&media_type) {
            let mut first = BytesMut::new();
            while first.len() < LOOKED_AT_BYTES
                && let Some(piece) = content.try_next().await?
            {
                first.extend_from_slice(&piece);
            }
            media_type = shown_type(&media_type, &first);
            content = stream::iter([Ok(first.freeze())]).chain(content).boxed();
        }
        let put = PutBlob::new(self.id(), info, content);
        if info.bytes > INLINE_MAX_BYTES as u64 && self.runtime().blob_max_bytes() > 0 {
            self.runtime().storage().sessions.blobs().put(put).await?;
            return Ok(Media::blob(media_type, info.name, info.bytes));
        }
        // In base64, with a text beside it.
        let most = agent_core::event::EVENT_MAX_BYTES as u64 / 4 * 11 / 4;
        let bytes = put.into_chunks(most)?.into_bytes().await?;
        Ok(Media::inline(media_type, &*bytes))
    }

    /// Returns the bytes of a medium of this conversation, in memory.
    ///
    /// # Errors
    ///
    /// `LimitExceeded` if there are more than `most`; those of [`media_content`](Self::media_content).
    pub async fn media_bytes(&self, media: &Media, most: usize) -> Result<Bytes> {
        self.media_content(media).await?.into_bytes(most).await
    }

    /// Opens a medium of this conversation, or of one from which it was forked, to read its bytes as a stream.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use futures::TryStreamExt;
    ///
    /// let film = chat.put_media("video/mp4", vec![7; 1_000_000]).await?;
    /// let mut content = chat.media_content(&film).await?.content;
    /// let mut bytes = 0;
    /// while let Some(piece) = content.try_next().await? {
    ///     bytes += piece.len();
    /// }
    /// assert_eq!(bytes, 1_000_000);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a medium at an address, which the library does not read; `Deleted`; those of
    /// [`BlobStore::read`](agent_core::store::BlobStore::read).
    pub async fn media_content(&self, media: &Media) -> Result<BlobContent> {
        self.media_range(media, 0..u64::MAX).await
    }

    /// Opens a medium like [`media_content`](Self::media_content), to read a range of its bytes. Reads no other chunks.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// let film = chat.put_media("video/mp4", vec![7; 1_000_000]).await?;
    /// let part = chat.media_range(&film, 999_990..u64::MAX).await?;
    /// assert_eq!((part.range.clone(), part.blob.bytes), (999_990..1_000_000, 1_000_000));
    /// assert_eq!(part.into_bytes(1024).await?, [7; 10].as_slice());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`media_content`](Self::media_content).
    pub async fn media_range(&self, media: &Media, range: Range<u64>) -> Result<BlobContent> {
        match &media.source {
            MediaSource::Inline(bytes) => Ok(self.inline_content(Bytes::copy_from_slice(bytes), range)),
            MediaSource::Blob { sha256, .. } => self.open_blob(*sha256, range).await,
            _ => Err(Error::invalid("a medium at an address has no bytes here; read the address")),
        }
    }

    /// Opens the whole output of a tool of this conversation, or of one from which it was forked, to read its bytes as a
    /// stream.
    ///
    /// A text is read as it is, any other output as JSON. Of a long output, the result itself has the beginning and the
    /// end only ([`full`](field@ToolResult::full)).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/models.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let list = tool("list", "Lists all.", |_: Nothing, _| async { Ok::<_, String>("file\n".repeat(1_000_000)) });
    /// # let (agent, chat) = calling(list, "{}", "Many.").await?;
    /// use agent_runtime::Update;
    ///
    /// let mut run = chat.prompt("How many files are there?").await?;
    /// while let Some(update) = run.next().await {
    ///     if let Update::ToolDone(result) = update? {
    ///         assert!(result.output.get().len() < 40_000);
    ///         let output = chat.output_content(&result).await?;
    ///         assert_eq!(output.into_bytes(8 << 20).await?.len(), 5_000_000);
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`BlobStore::read`](agent_core::store::BlobStore::read); `NotFound` if the log does not keep the output, `Corrupt`
    /// if it should and does not.
    pub async fn output_content(&self, result: &ToolResult) -> Result<BlobContent> {
        self.output_range(result, 0..u64::MAX).await
    }

    /// Opens an output like [`output_content`](Self::output_content), to read a range of its bytes.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/echo.rs"));
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # let (agent, chat) = echo().await?;
    /// use agent_core::event::{ToolOutcome, ToolResult};
    /// use agent_core::json::RawJson;
    ///
    /// let result = ToolResult::new("call-1".parse()?, ToolOutcome::Ok, RawJson::of(&"It is sunny.")?);
    /// assert_eq!(chat.output_range(&result, 6..11).await?.into_bytes(1024).await?, "sunny");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`output_content`](Self::output_content).
    pub async fn output_range(&self, result: &ToolResult, range: Range<u64>) -> Result<BlobContent> {
        if result.omitted {
            return Err(Error::not_found(format!(
                "session {} does not keep the output of call {}",
                self.id(),
                result.call
            )));
        }
        let text = match &result.full {
            Some(FullOutput { sha256: Some(sha256), .. }) => {
                return self.open_blob(*sha256, range).await.map_err(|error| match error.kind() {
                    // An output is put before its event names it.
                    ErrorKind::NotFound => {
                        Error::corrupt(format!("the whole output of call {} is lost: {error}", result.call))
                    }
                    _ => error,
                });
            }
            Some(full) => full.text.clone(),
            None => None,
        };
        let output = || result.output.to::<String>().unwrap_or_else(|_| result.output.get().to_owned());
        Ok(self.inline_content(text.unwrap_or_else(output).into(), range))
    }

    fn inline_content(&self, bytes: Bytes, range: Range<u64>) -> BlobContent {
        let read = ReadBlob::new(self.id(), BlobName::of(&bytes)).with_range(range);
        BlobContent::from_bytes(&read, bytes)
    }

    async fn open_blob(&self, name: BlobName, range: Range<u64>) -> Result<BlobContent> {
        let (sessions, record) = (&self.runtime().storage().sessions, self.refresh().await?);
        if record.status.state == SessionState::Deleted {
            // Its forks may read what is left of it.
            return Err(Error::deleted(format!("session {} was deleted", record.id)));
        }
        open_blob(&**sessions, &record, ReadBlob::new(self.id(), name).with_range(range)).await
    }
}
