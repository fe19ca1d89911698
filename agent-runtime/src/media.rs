//! Media of a conversation that are too large for an event: blobs of its session.

use agent_core::event::{Media, MediaSource};
use agent_core::store::{BlobContent, BlobInfo, BlobStream, PutBlob, ReadBlob};
use agent_core::{BlobName, Error, Result};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};

use crate::handle::Conversation;
use crate::runtime::media::open_blob;

/// Maximum number of bytes that a medium has in the event itself.
const INLINE_MAX: u64 = 1 << 10;

impl Conversation {
    /// Stores bytes for a message of this conversation, and returns them as a medium.
    ///
    /// More than 1 KiB are stored as a [blob](agent_core::SessionStore::put_blob) of the session, which the message then names; in a
    /// store without blobs, they are part of the message. A blob that no message names is removed by a garbage collection.
    ///
    /// A model is given the bytes of media of up to 32 MiB, and of 64 MiB in one request; a line of text stands for larger
    /// ones.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
    /// use agent_core::event::{Message, Part};
    ///
    /// let cat = chat.put_media("image/png", vec![0x89; 3_000_000]).await?.with_name("cat.png");
    /// let asked = Message::new("What is this?").with_part(Part::Image(cat.clone()));
    /// chat.prompt(asked).await?.finish().await?;
    /// assert_eq!(chat.media_bytes(&cat, 4 << 20).await?.len(), 3_000_000);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`put_blob`](agent_core::SessionStore::put_blob).
    pub async fn put_media(&self, media_type: impl Into<String>, bytes: impl Into<Bytes>) -> Result<Media> {
        let bytes = bytes.into();
        let info = BlobInfo::of(&bytes);
        self.put_media_content(media_type, info, stream::iter([Ok(bytes)]).boxed()).await
    }

    /// Stores content of any size for a message, like [`put_media`](Self::put_media), and holds at most 4 MiB of it in
    /// memory.
    ///
    /// `info` comes from a first reading of the content, for example by [`BlobInfo::of_stream`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
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
    /// Those of [`put_blob`](agent_core::SessionStore::put_blob); `LimitExceeded` for content that does not fit in an event, in a store without
    /// blobs.
    pub async fn put_media_content(
        &self,
        media_type: impl Into<String>,
        info: BlobInfo,
        content: BlobStream,
    ) -> Result<Media> {
        let sessions = &self.runtime().storage().sessions;
        let put = PutBlob::new(self.id(), info, content);
        if info.bytes > INLINE_MAX && sessions.capabilities().blob_max_bytes > 0 {
            sessions.put_blob(put).await?;
            return Ok(Media::blob(media_type, info.name, info.bytes));
        }
        // In base64, with a text beside it.
        let most = agent_core::event::EVENT_MAX_BYTES as u64 / 4 * 11 / 4;
        let mut chunks = put.into_chunks(most)?;
        let mut bytes = BytesMut::new();
        while let Some(chunk) = chunks.next().await? {
            bytes.extend_from_slice(&chunk);
        }
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
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> agent_core::Result<()> {
    /// # use agent_core::MemoryStore;
    /// # use agent_runtime::{AgentBuilder, EchoProvider};
    /// # let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(MemoryStore::new()).build()?;
    /// # let chat = agent.conversation("support/4711").await?;
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
    /// `InvalidInput` for a medium at an address, which the library does not read; those of
    /// [`read_blob`](agent_core::SessionStore::read_blob).
    pub async fn media_content(&self, media: &Media) -> Result<BlobContent> {
        match &media.source {
            MediaSource::Inline(bytes) => {
                let bytes = Bytes::copy_from_slice(bytes);
                let info = BlobInfo::of(&bytes);
                let read = ReadBlob::new(self.id(), info.name);
                Ok(BlobContent::from_chunks(&read, info, move |index| {
                    let start = usize::try_from(index).unwrap_or(usize::MAX).saturating_mul(CHUNK);
                    let chunk = bytes.slice(start..start + info.chunk_len(index));
                    let checksum = Some(info.checksum(index, &chunk));
                    async move { Ok(agent_core::store::BlobChunk::new(chunk, checksum)) }
                }))
            }
            MediaSource::Blob { sha256, .. } => self.open_blob(*sha256).await,
            _ => Err(Error::invalid("a medium at an address has no bytes here; read the address")),
        }
    }

    async fn open_blob(&self, name: BlobName) -> Result<BlobContent> {
        let sessions = &self.runtime().storage().sessions;
        open_blob(&**sessions, &self.record(), ReadBlob::new(self.id(), name)).await
    }
}

const CHUNK: usize = agent_core::store::BLOB_CHUNK_BYTES;
