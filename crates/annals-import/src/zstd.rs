//! Zstandard: the frames of a file one after another, with bounded memory and output.
//!
//! Invariants: the frames of a file are read up to its end, as `zstd -d` reads them; a frame whose checksum differs is
//! an error; the output does not exceed [`DECOMPRESSED_RATIO_MAX`] times the input.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::error::{SourceFault, SourceLimit};
use crate::limits::{DECOMPRESSED_BYTES_FREE, DECOMPRESSED_RATIO_MAX, RECORD_BYTES_MAX, WINDOW_BYTES_MAX};

/// The first bytes of a frame.
pub(crate) const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// The content of compressed frames.
pub(crate) struct ZstdFrames<R> {
    input: CountedInput<R>,
    decoder: FrameDecoder,
    /// True from the head of a frame to the end of its content.
    is_in_frame: bool,
    /// Bytes that were returned.
    output: u64,
}

struct CountedInput<R> {
    inner: R,
    /// Bytes that were taken.
    count: u64,
}

impl<R: BufRead> Read for CountedInput<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count += read as u64;
        Ok(read)
    }
}

fn damaged(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

impl<R: BufRead> ZstdFrames<R> {
    pub(crate) fn new(inner: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES_MAX);
        Self { input: CountedInput { inner, count: 0 }, decoder, is_in_frame: false, output: 0 }
    }

    /// Reads the head of the next frame, behind frames to skip. Returns false at the end of the input.
    fn next_frame(&mut self) -> io::Result<bool> {
        debug_assert!(!self.is_in_frame, "a frame begins behind the last one");
        loop {
            if self.input.inner.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.input) {
                Ok(()) => {
                    self.is_in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let wanted = u64::from(length);
                    if io::copy(&mut (&mut self.input).take(wanted), &mut io::sink())? < wanted {
                        return Err(damaged("a frame to skip is cut"));
                    }
                }
                Err(error) => return Err(damaged(error)),
            }
        }
    }

    /// Ends the frame whose content was read.
    fn end_frame(&mut self) -> io::Result<()> {
        debug_assert!(self.is_in_frame && self.decoder.can_collect() == 0, "the content was read");
        self.is_in_frame = false;
        match (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum()) {
            (Some(stored), Some(computed)) if stored != computed => Err(damaged("the checksum of a frame differs")),
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.decoder.can_collect() == 0 {
            if !self.is_in_frame {
                if !self.next_frame()? {
                    return Ok(0);
                }
            } else if self.decoder.is_finished() {
                self.end_frame()?;
            } else {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.input, one).map_err(damaged)?;
            }
        }
        let read = self.decoder.read(buffer)?;
        self.output += read as u64;
        if self.output > DECOMPRESSED_BYTES_FREE && self.output / DECOMPRESSED_RATIO_MAX > self.input.count {
            return Err(SourceLimit::new("bytes decompressed from one byte", DECOMPRESSED_RATIO_MAX).into_io());
        }
        Ok(read)
    }
}

/// Decompresses a document that is in memory.
pub(crate) fn decompress(bytes: &[u8]) -> Result<Vec<u8>, SourceFault> {
    let mut out = Vec::new();
    ZstdFrames::new(bytes).take(RECORD_BYTES_MAX as u64 + 1).read_to_end(&mut out)?;
    if out.len() > RECORD_BYTES_MAX {
        return Err(SourceLimit::new("bytes of a document", RECORD_BYTES_MAX as u64).into());
    }
    Ok(out)
}
