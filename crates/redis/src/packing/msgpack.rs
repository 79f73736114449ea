//! MessagePack, as far as the script is given any: integers and short strings, one after the other.

pub(super) fn put_integer(out: &mut Vec<u8>, number: i64) {
    match number {
        -32..=127 => out.extend_from_slice(&number.to_be_bytes()[7..]),
        -128..=-33 => put_tagged(out, 0xd0, number, 1),
        -32_768..=-129 => put_tagged(out, 0xd1, number, 2),
        128..=255 => put_tagged(out, 0xcc, number, 1),
        256..=0xFFFF => put_tagged(out, 0xcd, number, 2),
        0x1_0000..=0xFFFF_FFFF => put_tagged(out, 0xce, number, 4),
        ..-32_768 | 0x1_0000_0000.. => put_tagged(out, 0xd3, number, 8),
    }
}

fn put_tagged(out: &mut Vec<u8>, tag: u8, number: i64, bytes: usize) {
    out.push(tag);
    out.extend_from_slice(&number.to_be_bytes()[8 - bytes..]);
}

/// Appends a string of at most 31 bytes, which `put` appends.
pub(super) fn put_string(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.push(0);
    put(out);
    let bytes = out.len() - at - 1;
    debug_assert!(bytes < 32, "a string of {bytes} bytes has a longer head");
    out[at] = 0xa0 | u8::try_from(bytes & 31).unwrap_or(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_as_short_as_they_can_be() {
        for (number, expected) in [
            (0, &[0][..]),
            (127, &[127]),
            (128, &[0xcc, 128]),
            (256, &[0xcd, 1, 0]),
            (65_536, &[0xce, 0, 1, 0, 0]),
            (1 << 32, &[0xd3, 0, 0, 0, 1, 0, 0, 0, 0]),
            (-1, &[0xff]),
            (-32, &[0xe0]),
            (-33, &[0xd0, 0xdf]),
            (-129, &[0xd1, 0xff, 0x7f]),
            (-32_769, &[0xd3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff]),
        ] {
            let mut out = Vec::new();
            put_integer(&mut out, number);
            assert_eq!(out, expected, "{number}");
        }
    }

    #[test]
    fn a_string_is_behind_its_length() {
        let mut out = vec![1];
        put_string(&mut out, |out| out.extend_from_slice(b"abc"));
        assert_eq!(out, b"\x01\xa3abc");
    }
}
