//! Messages on a pair of byte streams: one JSON value on a line, of a bounded size, and few of them in memory.

use std::time::Duration;

use agent_client_protocol::{Error, RawJsonRpcMessage, TransportFrame};
use agent_core::text::with_whole_characters;
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender};
use serde_json::json;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

/// Number of updates that may wait to be written before the reader of a run or of a log waits.
const QUEUED_MAX: usize = 64;

/// Time in which a client that sends nothing more takes a message that is written to it.
const STALLED: Duration = Duration::from_secs(10);

/// Maximum bytes of a line that is not JSON which an error repeats.
const QUOTED_MAX_BYTES: usize = 200;

/// Method of the notifications that [`Flow`] counts.
const UPDATE: &str = "session/update";

/// Counts the updates that are sent and not written, so that a slow client does not fill the memory.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Room for updates that wait to be written; closed if nothing more can be written to the client.
    room: Semaphore,
    /// True if the client sends nothing more.
    gone: watch::Sender<bool>,
}

impl Flow {
    pub(crate) fn new() -> Self {
        Self { room: Semaphore::new(QUEUED_MAX), gone: watch::Sender::new(false) }
    }

    /// Waits until few updates wait to be written, and counts one that is about to be sent; returns at once if nothing
    /// more can be written.
    pub(crate) async fn send(&self) {
        if let Ok(room) = self.room.acquire().await {
            room.forget();
        }
    }

    fn sent(&self) {
        self.room.add_permits(1);
    }

    /// Records that the client sends nothing more.
    pub(crate) fn leave(&self) {
        self.gone.send_replace(true);
    }

    /// Records that nothing more can be written to the client.
    pub(crate) fn cut(&self) {
        self.room.close();
    }

    pub(crate) fn is_gone(&self) -> bool {
        *self.gone.borrow()
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.room.is_closed()
    }

    /// Waits until the client sends nothing more.
    pub(crate) async fn gone(&self) {
        // The sender lives as long as the wait.
        let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
    }

    /// Waits until the client sends nothing more, and for the time that it then has to take a message.
    async fn stalled(&self) {
        self.gone().await;
        sleep(STALLED).await;
    }
}

/// Line of the input.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Text(Vec<u8>),
    /// Line with more bytes than are allowed; they were read and dropped.
    TooLong(u64),
    End,
}

/// Reads messages until the input ends. What is no message of the protocol is answered with an error by the connection.
///
/// # Errors
///
/// Errors of the reader.
pub(crate) async fn read_frames(
    reader: impl AsyncRead + Unpin,
    frames: &UnboundedSender<TransportFrame>,
    most: usize,
) -> std::io::Result<()> {
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    loop {
        let frame = match next_line(&mut reader, most).await? {
            Line::End => return Ok(()),
            Line::TooLong(bytes) => too_long(bytes, most),
            // A line that is refused as a whole would be answered without the id of its request, for which the client
            // then waits.
            Line::Text(line) => match with_whole_characters(line).0 {
                line if line.len() > most => too_long(line.len() as u64, most),
                line if line.trim().is_empty() => continue,
                line => short(TransportFrame::parse_json(&line)),
            },
        };
        if frames.unbounded_send(frame).is_err() {
            return Ok(());
        }
    }
}

/// Writes messages until there are no more, and closes the output. Returns early if a client that sends nothing more does
/// not take a message.
///
/// # Errors
///
/// Errors of the writer.
pub(crate) async fn write_frames(
    mut frames: UnboundedReceiver<TransportFrame>,
    mut writer: impl AsyncWrite + Unpin,
    flow: &Flow,
) -> std::io::Result<()> {
    while let Some(frame) = frames.next().await {
        let is_update = matches!(
            &frame,
            TransportFrame::Single(RawJsonRpcMessage::Notification(update)) if &*update.method == UPDATE
        );
        let mut line = frame.to_json().map_err(std::io::Error::other)?;
        line.push('\n');
        let write = async {
            writer.write_all(line.as_bytes()).await?;
            writer.flush().await
        };
        tokio::select! {
            written = write => written?,
            () = flow.stalled() => return Ok(()),
        }
        if is_update {
            flow.sent();
        }
    }
    writer.shutdown().await
}

fn too_long(bytes: u64, most: usize) -> TransportFrame {
    let text = format!("a message of {bytes} bytes is longer than {most}; send less in one message");
    TransportFrame::Malformed { raw: String::new(), error: Error::invalid_request().data(text) }
}

/// Cuts what an error repeats of a line that is not JSON.
fn short(frame: TransportFrame) -> TransportFrame {
    match frame {
        TransportFrame::Malformed { raw, mut error } if raw.len() > QUOTED_MAX_BYTES => {
            let begin = &raw[..raw.floor_char_boundary(QUOTED_MAX_BYTES)];
            error.data = Some(json!({ "line": format!("{begin}… ({} bytes)", raw.len()) }));
            TransportFrame::Malformed { raw, error }
        }
        frame => frame,
    }
}

/// Reads a line without its end. Holds at most `most` bytes of it.
async fn next_line(reader: &mut (impl AsyncBufRead + Unpin), most: usize) -> std::io::Result<Line> {
    let (mut line, mut bytes) = (Vec::new(), 0u64);
    loop {
        let read = reader.fill_buf().await?;
        if read.is_empty() && bytes == 0 {
            return Ok(Line::End);
        }
        let end = read.iter().position(|byte| *byte == b'\n');
        let piece = &read[..end.unwrap_or(read.len())];
        bytes += piece.len() as u64;
        if line.len() + piece.len() <= most {
            line.extend_from_slice(piece);
        } else {
            line = Vec::new();
        }
        let is_last = end.is_some() || read.is_empty();
        let used = piece.len() + usize::from(end.is_some());
        reader.consume(used);
        if is_last {
            return Ok(if bytes > most as u64 { Line::TooLong(bytes) } else { Line::Text(line) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8], most: usize) -> Vec<Line> {
        // A small buffer, so that lines are read in pieces.
        let mut reader = BufReader::with_capacity(3, input);
        let mut lines = Vec::new();
        loop {
            match next_line(&mut reader, most).await.unwrap() {
                Line::End => return lines,
                line => lines.push(line),
            }
        }
    }

    #[tokio::test]
    async fn lines_are_bounded() {
        let text = |text: &str| Line::Text(text.as_bytes().to_vec());
        assert_eq!(lines(b"", 8).await, []);
        assert_eq!(lines(b"12345678\n\n1\n", 8).await, [text("12345678"), text(""), text("1")]);
        let read = lines(b"123456789\n12345678901234567890\n1", 8).await;
        assert_eq!(read, [Line::TooLong(9), Line::TooLong(20), text("1")]);
    }

    #[tokio::test]
    async fn room_comes_with_what_is_written_or_with_the_end() {
        let flow = Flow::new();
        for _ in 0..QUEUED_MAX {
            flow.send().await;
        }
        let mut room = std::pin::pin!(flow.send());
        assert!(futures::poll!(room.as_mut()).is_pending());
        flow.sent();
        room.await;
        let mut room = std::pin::pin!(flow.send());
        assert!(futures::poll!(room.as_mut()).is_pending());
        flow.leave();
        assert!(futures::poll!(room.as_mut()).is_pending());
        flow.cut();
        room.await;
    }
}
