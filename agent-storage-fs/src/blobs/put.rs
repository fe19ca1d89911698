//! Puts, reads and sweeps blobs: content is awaited on async threads, and each chunk is written or read on a blocking
//! one.

use std::sync::Arc;

use agent_core::store::{BLOB_MAX_BYTES, BlobContent, PutBlob, ReadBlob, SweepBlobs, SweptBlobs};
use agent_core::{OpenState, Result, SessionId, WriteOutcome};

use crate::blobs::staged::{self, OpenBlob, Staged};
use crate::blobs::sweep;
use crate::medium::shell::{blocking, working};
use crate::shared::tenant::SharedSession;
use crate::shared::writer::SessionWriter;

/// Puts a blob. Holds one chunk and one piece of the content in memory.
pub(crate) async fn put(writer: SessionWriter, cell: Arc<SharedSession>, put: PutBlob) -> Result<()> {
    let id = put.session;
    let mut chunks = put.into_chunks(BLOB_MAX_BYTES)?;
    let (blob, tenant) = (chunks.blob(), writer.tenant.clone());
    let open = tenant.env.open.clone();
    let (of, known) = (tenant.clone(), cell.clone());
    let staged = working(&open, move || staged::begin(&of, &known, id, blob)).await?;
    let mut putting = Putting { staged: Some(Arc::new(staged)), open: open.clone() };
    let Some(staged) = putting.staged.clone() else { return Ok(()) };
    let work = async move {
        while let Some(chunk) = chunks.next().await? {
            let staged = staged.clone();
            working(&open, move || staged.write(&chunk)).await?;
        }
        let (finished, known) = (staged.clone(), cell.clone());
        working(&open, move || staged::finish(&tenant, &known, &finished)).await?;
        writer.with_lock(move |tenant, slot| staged::publish(tenant, &cell, slot, &staged)).await
    };
    let done = work.await;
    // Removes what is left of a blob that was not published.
    let staged = putting.staged.take();
    blocking(move || drop(staged)).await?;
    done
}

/// Returns the content of an open blob.
pub(crate) fn content(read: &ReadBlob, opened: OpenBlob, open: &OpenState) -> BlobContent {
    let (blob, opened, open) = (opened.blob, Arc::new(opened), open.clone());
    BlobContent::from_chunks(read, blob, move |index| {
        let (opened, open) = (opened.clone(), open.clone());
        async move { working(&open, move || opened.chunk(index)).await }
    })
}

/// Sweeps the blobs of sessions, or of ids without one, one after the other.
pub(crate) async fn sweep(
    sessions: impl Iterator<Item = (SessionWriter, Arc<SharedSession>, SessionId)> + Send,
    sweep: SweepBlobs,
) -> Result<SweptBlobs> {
    let (mut swept, mut failed, mut in_doubt) = (SweptBlobs::default(), None, false);
    for (writer, cell, id) in sessions {
        let work = writer.with_lock(move |tenant, slot| sweep::sweep(tenant, &cell, slot, id, sweep));
        // What cannot be swept keeps nobody else's blobs.
        match work.await {
            Ok(done) => swept += done,
            Err(error) => {
                in_doubt |= error.write_outcome() == WriteOutcome::Unknown;
                failed = failed.or(Some(error));
            }
        }
    }
    match failed {
        None => Ok(swept),
        Some(error) if swept.blobs == 0 && !in_doubt => Err(error),
        // A part was done, or perhaps.
        Some(error) => Err(error.with_outcome(WriteOutcome::Unknown)),
    }
}

/// Blob that is being put. If the caller is dropped, what is stored of it is removed on a thread that may block.
struct Putting {
    staged: Option<Arc<Staged>>,
    open: OpenState,
}

impl Drop for Putting {
    fn drop(&mut self) {
        let Some(staged) = self.staged.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // Closing the store waits for it.
        let working = self.open.begin();
        runtime.spawn_blocking(move || {
            drop(staged);
            drop(working);
        });
    }
}
