//! A model of a disk in memory: it knows what was synced, and its calls fail when asked to.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_storage_conformance::FailingCall;
use redb::StorageBackend;

/// A disk with one file. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// What the store reads.
    now: Vec<u8>,
    /// What is left when the power goes.
    synced: Vec<u8>,
    failing: Option<FailingCall>,
    calls: usize,
}

impl Disk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the loss of power leaves.
    pub(crate) fn after_power_loss(&self) -> Self {
        let synced = self.state().synced.clone();
        Self(Arc::new(Mutex::new(State { now: synced.clone(), synced, ..State::default() })))
    }

    /// Makes a call fail from now on; returns whether the one before was made.
    pub(crate) fn fail(&self, call: Option<FailingCall>) -> bool {
        let mut state = self.state();
        let struck = state.failing.is_some_and(|failing| state.calls > failing.skip);
        (state.failing, state.calls) = (call, 0);
        struck
    }

    /// A call that changes the disk, unless it is the one that fails.
    fn change(&self, work: impl FnOnce(&mut State)) -> io::Result<()> {
        let mut state = self.state();
        state.calls += 1;
        match state.failing {
            Some(failing) if state.calls == failing.skip + 1 => {
                if failing.done {
                    work(&mut state);
                }
                Err(io::Error::other("the disk failed"))
            }
            _ => {
                work(&mut state);
                Ok(())
            }
        }
    }
}

fn place(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        let end = place(offset).saturating_add(out.len());
        let bytes = state.now.get(place(offset)..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|state| state.now.resize(place(len), 0))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change(|state| state.synced.clone_from(&state.now))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(|state| {
            let end = place(offset) + data.len();
            if state.now.len() < end {
                state.now.resize(end, 0);
            }
            state.now[place(offset)..end].copy_from_slice(data);
        })
    }
}
