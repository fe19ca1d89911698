//! Output of a server that is a child process, line by line.

use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, BufReader, ReadBuf};

use crate::backlog::Backlog;
use crate::mend::mended;

/// Bytes by which one byte of a line may grow when it is mended.
pub(crate) const GROWTH: usize = 3;

/// Output of a server, whose lines are [mended]. It ends at a line that is too long, since the answer in it would never
/// come, and if too many requests wait for their answers.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    inner: BufReader<R>,
    /// Bytes since the last line break.
    line: Vec<u8>,
    /// Line that is being given out, and how much of it was.
    given: Vec<u8>,
    at: usize,
    most: usize,
    backlog: Backlog,
}

impl<R: AsyncRead> Lines<R> {
    /// `most` is the maximum bytes of a line with its break.
    pub(crate) fn new(inner: R, most: usize, backlog: Backlog) -> Self {
        Self { inner: BufReader::new(inner), line: Vec::new(), given: Vec::new(), at: 0, most, backlog }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Lines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.at == this.given.len() {
            let read = ready!(Pin::new(&mut this.inner).poll_fill_buf(cx))?;
            let end = read.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(read.len(), |end| end + 1);
            if this.line.len() + count > this.most {
                return Poll::Ready(Err(io::Error::other("a message is too large")));
            }
            this.line.extend_from_slice(&read[..count]);
            let is_last = read.is_empty();
            Pin::new(&mut this.inner).consume(count);
            if is_last && this.line.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if end.is_some() || is_last {
                let mut line = mem::take(&mut this.line);
                let has_break = line.pop_if(|byte| *byte == b'\n').is_some();
                let message = mended(&line);
                if message.is_request && !this.backlog.add() {
                    return Poll::Ready(Err(io::Error::other("too many requests wait for their answers")));
                }
                this.given = message.text;
                this.given.extend(has_break.then_some(b'\n'));
                this.at = 0;
            }
        }
        let count = buf.remaining().min(this.given.len() - this.at);
        buf.put_slice(&this.given[this.at..this.at + count]);
        this.at += count;
        if this.at == this.given.len() {
            // A long line is not kept until the next one.
            (this.given, this.at) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn a_line_that_is_too_long_ends_the_output() {
        let text = format!("{}\n{}\n{}", "a".repeat(9), "b".repeat(9), "c".repeat(10));
        let mut whole = String::new();
        Lines::new(text.as_bytes(), 10, Backlog::default()).read_to_string(&mut whole).await.unwrap();
        assert_eq!(whole, text);
        assert!(
            Lines::new(text.as_bytes(), 9, Backlog::default())
                .read_to_string(&mut String::new())
                .await
                .is_err()
        );
    }

    #[tokio::test]
    async fn requests_that_nobody_waits_for_end_the_output() {
        let asked = |count: usize| "{\"id\":1,\"method\":\"ping\"}\n".repeat(count);
        let (backlog, mut read) = (Backlog::default(), String::new());
        Lines::new(asked(1000).as_bytes(), 100, backlog.clone()).read_to_string(&mut read).await.unwrap();
        backlog.sent(3);
        Lines::new(asked(3).as_bytes(), 100, backlog.clone()).read_to_string(&mut read).await.unwrap();
        assert!(Lines::new(asked(1).as_bytes(), 100, backlog).read_to_string(&mut read).await.is_err());
    }

    #[tokio::test]
    async fn lines_are_mended() {
        let output = b"{\"a\":\"\\ud83d\"}\r\n\n{\"b\":\"\xff\"}\nno message";
        let mut whole = String::new();
        Lines::new(output.as_slice(), 100, Backlog::default()).read_to_string(&mut whole).await.unwrap();
        assert_eq!(whole, "{\"a\":\"\\ufffd\"}\r\n\n{\"b\":\"\u{fffd}\"}\nno message");
    }
}
