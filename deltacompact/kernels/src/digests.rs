//! Key digests: pads key bytes into SHA-1 blocks, in an arena that stays in the cache, and hashes them lane by lane.
//!
//! ```text
//! row 0, 11 key bytes     01 01 01 000000000000002a | 80 00 .. 00 | 0000000000000058     one block
//! row 1, 60 key bytes     ......................... 80 00 00 00 | 00 .. 00 | ...01e0     two blocks: 60 + 1 + 8 > 64
//! ```
//!
//! If all keys have one length, the next batch reuses the arena of the last one, and only overwrites the key bytes.

use crate::Refused;
use crate::key_bytes::KeyColumns;
use crate::sha1::{BLOCK_BYTES, Block, Digest, Message};
use crate::sha1_backend::Backend;

/// Rows of a batch. If keys are short, their blocks take 16 KiB.
const BATCH_ROWS: usize = 256;
/// A batch of long keys has fewer rows.
const BATCH_BYTES: usize = 1 << 20;

/// Fills `out`, one digest per row.
pub fn digest_rows(columns: &KeyColumns, backend: Backend, out: &mut [Digest]) -> Result<(), Refused> {
    let mut batch = Batch::default();
    let alike = columns.have_one_length();
    let mut from = 0;
    while from < out.len() {
        let most = BATCH_ROWS.min(out.len() - from);
        let rows = if alike && batch.messages.len() == most {
            batch.begin_again();
            columns.write(from..from + most, batch.arena.as_flattened_mut(), &mut batch.cursors)?;
            most
        } else {
            let rows = batch.lay_out(columns, from, most)?;
            columns.write(from..from + rows, batch.arena.as_flattened_mut(), &mut batch.cursors)?;
            batch.pad();
            rows
        };
        backend.digest(&batch.arena, &batch.messages, &mut out[from..from + rows]);
        from += rows;
    }
    Ok(())
}

/// The key bytes of each row, as they are hashed.
pub fn each_row_bytes(columns: &KeyColumns, rows: usize, mut each: impl FnMut(&[u8])) -> Result<(), Refused> {
    let mut batch = Batch::default();
    for row in 0..rows {
        batch.lay_out(columns, row, 1)?;
        let arena = batch.arena.as_flattened_mut();
        columns.write(row..row + 1, arena, &mut batch.cursors)?;
        each(&arena[..batch.cursors[0]]);
    }
    Ok(())
}

/// Buffers that live as long as the call.
#[derive(Default)]
struct Batch {
    arena: Vec<Block>,
    lengths: Vec<usize>,
    cursors: Vec<usize>,
    messages: Vec<Message>,
}

impl Batch {
    /// Places as many of the next rows as fit in a zeroed arena. Returns their number.
    fn lay_out(&mut self, columns: &KeyColumns, from: usize, most: usize) -> Result<usize, Refused> {
        self.lengths.clear();
        self.lengths.resize(most, 0);
        columns.lengths(from..from + most, &mut self.lengths)?;
        self.cursors.clear();
        self.messages.clear();
        let mut next_block = 0;
        for (row, length) in self.lengths.iter().enumerate() {
            let blocks = (length + 1 + 8).div_ceil(BLOCK_BYTES);
            if row > 0 && (next_block + blocks) * BLOCK_BYTES > BATCH_BYTES {
                break;
            }
            let blocks = u32::try_from(blocks).map_err(|_| format!("row {}: a key of {length} bytes", from + row))?;
            self.cursors.push(next_block * BLOCK_BYTES);
            self.messages.push(Message { first_block: next_block as u32, blocks, digest: row as u32 });
            next_block += blocks as usize;
        }
        self.arena.clear();
        self.arena.resize(next_block, [0; BLOCK_BYTES]);
        Ok(self.messages.len())
    }

    /// Places rows of the same lengths as before into the same arena: their bytes overwrite those of the former rows.
    fn begin_again(&mut self) {
        for (cursor, message) in self.cursors.iter_mut().zip(&self.messages) {
            *cursor = message.first_block as usize * BLOCK_BYTES;
        }
    }

    /// Ends each message: a one bit after its bytes, and its length in bits at the end of its last block.
    fn pad(&mut self) {
        let mut fewest = u32::MAX;
        let mut greatest = 0;
        for (message, &end) in self.messages.iter().zip(&self.cursors) {
            let first = message.first_block as usize;
            let last = first + message.blocks as usize - 1;
            self.arena[end / BLOCK_BYTES][end % BLOCK_BYTES] = 0x80;
            let bits = 8 * (end - first * BLOCK_BYTES) as u64;
            self.arena[last][BLOCK_BYTES - 8..].copy_from_slice(&bits.to_be_bytes());
            fewest = fewest.min(message.blocks);
            greatest = greatest.max(message.blocks);
        }
        if fewest != greatest {
            self.messages.sort_unstable_by_key(|message| message.blocks);
        }
    }
}
