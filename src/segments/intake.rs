//! Reads an object's pieces as they come, counting and hashing all of them.

use std::io::{self, Read};

use bytes::{Buf, Bytes};
use sha2::Digest;
use tokio::sync::mpsc;
use weir_core::segment::Sha256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakenObject {
    pub bytes: u64,
    pub sha256: Sha256,
}

/// A reader over pieces that another task sends. It blocks, so it belongs on a thread that may.
#[derive(Debug)]
pub struct TakingReader {
    waiting: mpsc::Receiver<Bytes>,
    piece: Bytes,
    bytes: u64,
    hasher: sha2::Sha256,
}

impl TakingReader {
    /// Reads until the senders are gone.
    pub fn new(waiting: mpsc::Receiver<Bytes>) -> Self {
        Self { waiting, piece: Bytes::new(), bytes: 0, hasher: sha2::Sha256::new() }
    }

    /// Takes what is left, read or not, and tells what all of it was.
    #[must_use]
    pub fn finish(mut self) -> TakenObject {
        while self.next_piece() {}
        TakenObject { bytes: self.bytes, sha256: Sha256(self.hasher.finalize().into()) }
    }

    fn next_piece(&mut self) -> bool {
        let Some(piece) = self.waiting.blocking_recv() else { return false };
        self.bytes += piece.len() as u64;
        self.hasher.update(&piece);
        self.piece = piece;
        true
    }
}

impl Read for TakingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            if !self.next_piece() {
                return Ok(0);
            }
        }
        let taken = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..taken]);
        Ok(taken)
    }
}
