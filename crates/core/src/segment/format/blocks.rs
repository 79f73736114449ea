//! The portable format of 32-bit bitmaps, read container by container: each becomes a block's bitmap.
//!
//! The library reads and checks the containers; what is around them (which there are, of which kind) is read here.
//! See <https://github.com/RoaringBitmap/RoaringFormatSpec>.

use std::io::{self, Read};

use roaring::RoaringBitmap;

use crate::segment::{
    Blocks,
    format::{invalid, word},
};

/// How a bitmap without run containers begins; the number of containers follows.
const WITHOUT_RUNS: u32 = 12_346;
/// How one with run containers begins, in the lower half; the upper half is the number of containers less one.
const WITH_RUNS: u32 = 12_347;
/// The most containers: all blocks that there are.
const MAX_CONTAINERS: usize = 1 << 16;
/// From so many containers on, a bitmap with runs has offsets too.
const MIN_CONTAINERS_WITH_OFFSETS: usize = 4;

/// What the head says of a container: its key and its cardinality less one, as they are in the file.
type Described = [u8; 4];

/// Reads one 32-bit bitmap.
pub(super) fn read_blocks(reader: &mut impl Read) -> io::Result<Blocks> {
    let (runs, described) = read_head(reader)?;
    let mut blocks = Blocks::new();
    for (at, container) in described.as_chunks::<4>().0.iter().enumerate() {
        let run = runs.get(at / 8).is_some_and(|flags| flags & 1 << (at % 8) != 0);
        let bitmap = read_container(*container, run, reader)?;
        blocks.push(bitmap).ok_or_else(|| invalid("its containers are empty or not in ascending order"))?;
    }
    Ok(blocks)
}

/// The flags of run containers, none in a file without, and what is said of each container.
fn read_head(reader: &mut impl Read) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let cookie = word(reader)?;
    let (containers, with_runs) = if cookie == WITHOUT_RUNS {
        (word(reader)? as usize, false)
    } else if cookie & 0xFFFF == WITH_RUNS {
        ((cookie >> 16) as usize + 1, true)
    } else {
        return Err(invalid("it begins as no RoaringBitmap does"));
    };
    if containers > MAX_CONTAINERS {
        return Err(invalid("it counts more containers than there can be"));
    }
    let mut runs = vec![0; if with_runs { containers.div_ceil(8) } else { 0 }];
    reader.read_exact(&mut runs)?;
    let mut described = vec![0; size_of::<Described>() * containers];
    reader.read_exact(&mut described)?;
    if !with_runs || containers >= MIN_CONTAINERS_WITH_OFFSETS {
        // Where each container begins, which is of use only to those who do not read all of them.
        reader.read_exact(&mut vec![0; 4 * containers])?;
    }
    Ok((runs, described))
}

/// Reads one container, by giving the library the head of a bitmap that has this one alone.
fn read_container(described: Described, run: bool, reader: &mut impl Read) -> io::Result<RoaringBitmap> {
    let [a, b, c, d] = described;
    if run {
        let [low, high, ..] = WITH_RUNS.to_le_bytes();
        return RoaringBitmap::deserialize_from((&[low, high, 0, 0, 1, a, b, c, d][..]).chain(reader));
    }
    let [e, f, g, h] = WITHOUT_RUNS.to_le_bytes();
    RoaringBitmap::deserialize_from((&[e, f, g, h, 1, 0, 0, 0, a, b, c, d, 0, 0, 0, 0][..]).chain(reader))
}
