//! Whole numbers as they are written, read eight digits at a time.

/// The most digits whose value is below 2^64 whatever they are.
pub(crate) const MAX_DIGITS: usize = 19;

/// The number that a text is, if it is one below 2^64 and written as numbers are: digits, the first of several no 0.
pub(crate) fn canonical(text: &str) -> Option<u64> {
    match text.as_bytes() {
        [b'0'] => Some(0),
        digits @ [b'1'..=b'9', ..] if digits.len() <= MAX_DIGITS => value(digits),
        [b'1'..=b'9', ..] => text.parse().ok(),
        _ => None,
    }
}

/// The value of digits; `None` for more of them than [`MAX_DIGITS`], and for other bytes.
pub(crate) fn value(digits: &[u8]) -> Option<u64> {
    if digits.len() > MAX_DIGITS {
        return None;
    }
    let (eights, rest) = digits.as_chunks();
    let mut value = if eights.is_empty() { 0 } else { value_of_eights(eights)? };
    for byte in rest {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + u64::from(digit);
    }
    Some(value)
}

/// The value of up to sixteen digits. By itself: short numbers are spared its preparations.
#[inline(never)]
fn value_of_eights(eights: &[[u8; 8]]) -> Option<u64> {
    let add = |value: u64, eight: &[u8; 8]| are_digits(*eight).then(|| value * 100_000_000 + value_of_eight(*eight));
    eights.iter().try_fold(0, add)
}

/// The value of eight digits: neighbours are put together, three times.
fn value_of_eight(digits: [u8; 8]) -> u64 {
    let ones = u64::from_le_bytes(digits).wrapping_sub(ZEROS);
    let twos = (ones.wrapping_mul(10).wrapping_add(ones >> 8)) & 0x00FF_00FF_00FF_00FF;
    let fours = (twos.wrapping_mul(100).wrapping_add(twos >> 16)) & 0x0000_FFFF_0000_FFFF;
    fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xFFFF_FFFF
}

/// Whether all of these are digits: they keep the upper half that all digits have, with 6 added, too.
fn are_digits(bytes: [u8; 8]) -> bool {
    const UPPER_HALVES: u64 = u64::from_ne_bytes([0xF0; 8]);
    let word = u64::from_le_bytes(bytes);
    let more = word.wrapping_add(u64::from_ne_bytes([6; 8]));
    (word & UPPER_HALVES) == ZEROS && (more & UPPER_HALVES) == ZEROS
}

/// Eight times the digit 0.
const ZEROS: u64 = u64::from_ne_bytes([b'0'; 8]);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same, digit by digit.
    fn model(text: &str) -> Option<u64> {
        text.parse().ok().filter(|number: &u64| number.to_string() == text)
    }

    #[test]
    fn numbers_are_read_up_to_the_largest() {
        let texts = "|0|00|01|042|42|4 2|u42|-1|+1|1234567/|12345678:|1\u{0}|9999999999999999999|18446744073709551615|\
            18446744073709551616|99999999999999999999|100000000000000000000";
        for text in texts.split('|') {
            assert_eq!(canonical(text), model(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_is_written(number: u64, digits in 1_u32..20, text in "[0-9:/é +-]{0,21}", at in 0_usize..21) {
            for number in [number, number % 10_u64.pow(digits)] {
                let written = number.to_string();
                prop_assert_eq!(canonical(&written), Some(number));
                prop_assert_eq!(value(written.as_bytes()), Some(number).filter(|_| written.len() <= MAX_DIGITS));
                let mut spoilt: Vec<char> = written.chars().collect();
                spoilt.insert(at % (spoilt.len() + 1), text.chars().next().unwrap_or('x'));
                let spoilt: String = spoilt.into_iter().collect();
                prop_assert_eq!(canonical(&spoilt), model(&spoilt), "{}", spoilt);
            }
            prop_assert_eq!(canonical(&text), model(&text), "{}", text);
        }
    }
}
