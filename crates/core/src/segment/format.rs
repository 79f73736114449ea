//! The portable Roaring formats, read with suspicion and written.
//!
//! A file is from anywhere, so nothing is allocated for a count that the bytes do not bear out, keys must ascend,
//! and nothing may follow. See <https://github.com/RoaringBitmap/RoaringFormatSpec>.

use std::io::{self, Read, Write};

use roaring::{RoaringBitmap, RoaringTreemap};

use super::{Blocks, Members, UserIdKind};

/// The fewest bytes of a part of a 64-bit bitmap: key, then cookie and count of one without members. Some libraries leave
/// such a part where a set lost its last member there.
const MIN_PART_BYTES: u64 = 4 + 4 + 4;
/// How a 32-bit bitmap of one container without runs begins: cookie 12346, then the count.
const ONE_CONTAINER: [u8; 8] = [0x3A, 0x30, 0, 0, 1, 0, 0, 0];
/// The most values of a container that lists them.
const MAX_LISTED: usize = 4096;

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

/// Why bytes are not a bitmap of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FormatError(String);

/// Reads one bitmap, which must be all that there is; `bytes` is how much there is, where that is known.
pub fn read_members(kind: UserIdKind, bytes: Option<u64>, reader: &mut impl Read) -> Result<Members, FormatError> {
    let members = match kind {
        UserIdKind::U32 => read_blocks(reader).map(Members::U32),
        UserIdKind::U64 => read_treemap(bytes, reader).map(Members::U64),
        UserIdKind::Hash64 => read_hashes(bytes, reader).map(Members::Hash64),
    };
    let members = members.map_err(|error| wrong(kind, &error))?;
    match reader.read(&mut [0]) {
        Ok(0) => Ok(members),
        Ok(_) => Err(FormatError("has bytes after the end of its RoaringBitmap".to_owned())),
        Err(error) => Err(wrong(kind, &error)),
    }
}

/// Writes members in the format in which they are read; the same members always give the same bytes.
pub fn write_members(members: &Members, writer: &mut impl Write) -> io::Result<()> {
    match members {
        Members::U32(ids) => ids.to_bitmap().serialize_into(writer),
        Members::U64(ids) => ids.serialize_into(writer),
        Members::Hash64(hashes) => write_hashes(hashes, writer),
    }
}

fn wrong(kind: UserIdKind, error: &io::Error) -> FormatError {
    let too_early = error.kind() == io::ErrorKind::UnexpectedEof;
    let message = if too_early { "it ends too early".to_owned() } else { error.to_string() };
    FormatError(format!("is not a RoaringBitmap in the portable format of kind {kind}: {message}"))
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn word(reader: &mut impl Read) -> io::Result<u32> {
    let mut word = [0; 4];
    reader.read_exact(&mut word)?;
    Ok(u32::from_le_bytes(word))
}

/// Reads one 32-bit bitmap, container by container: each becomes a block's bitmap. The library reads and checks the containers; this
/// reads the list of them, with their kinds.
fn read_blocks(reader: &mut impl Read) -> io::Result<Blocks> {
    let (runs, described) = read_head(reader)?;
    let mut blocks = Blocks::default();
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

/// The number of parts, no more than the bytes can hold.
fn part_count(bytes: Option<u64>, reader: &mut impl Read) -> io::Result<u64> {
    let parts = u64::from(word(reader)?) | u64::from(word(reader)?) << 32;
    let most = bytes.map_or(u64::MAX, |bytes| bytes.saturating_sub(8) / MIN_PART_BYTES);
    if parts > most.min(1 << 32) {
        return Err(invalid(
            "it counts more parts than its size allows. `serialize` of Java's 64-bit bitmaps writes another format: \
             Roaring64NavigableMap.serializePortable writes this one",
        ));
    }
    Ok(parts)
}

/// The key of the next part, which must be above the last one.
fn part_key(last: &mut Option<u32>, reader: &mut impl Read) -> io::Result<u32> {
    let key = word(reader)?;
    if last.is_some_and(|last| key <= last) {
        return Err(invalid("its parts are not in ascending order"));
    }
    *last = Some(key);
    Ok(key)
}

fn read_treemap(bytes: Option<u64>, reader: &mut impl Read) -> io::Result<RoaringTreemap> {
    let parts = part_count(bytes, reader)?;
    let mut last = None;
    let mut found = Vec::new();
    for _ in 0..parts {
        let key = part_key(&mut last, reader)?;
        let part = RoaringBitmap::deserialize_from(&mut *reader)?;
        if !part.is_empty() {
            found.push((key, part));
        }
    }
    Ok(RoaringTreemap::from_bitmaps(found))
}

/// Hashes hardly ever share a container, so that each is two bytes or more of the file; where they do not, it is
/// not hashes, and taking them apart could use up memory.
fn read_hashes(bytes: Option<u64>, reader: &mut impl Read) -> io::Result<Box<[u64]>> {
    let parts = part_count(bytes, reader)?;
    let most = bytes.map_or(u64::MAX, |bytes| bytes / 2);
    let mut last = None;
    let mut hashes = Vec::new();
    for _ in 0..parts {
        let high = u64::from(part_key(&mut last, reader)?) << 32;
        read_hashes_part(high, most, &mut hashes, reader)?;
    }
    Ok(hashes.into_boxed_slice())
}

fn read_hashes_part(high: u64, most: u64, hashes: &mut Vec<u64>, reader: &mut impl Read) -> io::Result<()> {
    let mut head = [0; 16];
    reader.read_exact(&mut head[..8])?;
    let mut head_bytes = 8;
    if head[..8] == ONE_CONTAINER {
        reader.read_exact(&mut head[8..])?;
        head_bytes = 16;
        let values = usize::from(u16::from_le_bytes([head[10], head[11]])) + 1;
        if values <= MAX_LISTED {
            let high = high | u64::from(u16::from_le_bytes([head[8], head[9]])) << 16;
            return read_listed(high, values, hashes, reader);
        }
    }
    let part = RoaringBitmap::deserialize_from((&head[..head_bytes]).chain(reader))?;
    if part.len() + hashes.len() as u64 > most {
        return Err(invalid("its members are not hashes"));
    }
    hashes.extend(part.iter().map(|low| high | u64::from(low)));
    Ok(())
}

/// A container that lists its values, as nearly every one of hashes does: with one value, and the only one of its
/// part. A bitmap for each would make reading them five times as long.
fn read_listed(high: u64, values: usize, hashes: &mut Vec<u64>, reader: &mut impl Read) -> io::Result<()> {
    let mut last = None;
    for _ in 0..values {
        let mut value = [0; 2];
        reader.read_exact(&mut value)?;
        let value = u16::from_le_bytes(value);
        if last.is_some_and(|last| value <= last) {
            return Err(invalid("its values are not in ascending order"));
        }
        last = Some(value);
        hashes.push(high | u64::from(value));
    }
    Ok(())
}

fn write_hashes(hashes: &[u64], writer: &mut impl Write) -> io::Result<()> {
    let same_part = |a: &u64, b: &u64| a >> 32 == b >> 32;
    let parts = hashes.chunk_by(same_part).count() as u64;
    writer.write_all(&parts.to_le_bytes())?;
    for part in hashes.chunk_by(same_part) {
        let key = u32::try_from(part[0] >> 32).expect("32 bits are left of 64 after a shift by 32");
        writer.write_all(&key.to_le_bytes())?;
        let low = |hash: &u64| u32::try_from(hash & u64::from(u32::MAX)).expect("32 bits are left by the mask");
        part.iter().map(low).collect::<RoaringBitmap>().serialize_into(&mut *writer)?;
    }
    Ok(())
}
