//! How members share a total: each by what it wants, max-min fair. The one rule of all limits.

/// For how long the same members get what cannot be divided, in milliseconds.
const ROTATE_MS: i64 = 10_000;

/// One of those who share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanting<'w> {
    pub want: u64,
    /// Its name, by which those who want as much are ordered.
    pub name: &'w str,
}

/// The part of a member of a total, beside others, at this time in ms since 1970.
///
/// Whoever wants no more than an even part of what is left gets what it wants. The others share the rest evenly, and take turns at the
/// remainder. Where all get what they want, the surplus is shared evenly, so that each can begin at once.
pub fn fair_share<'w>(total: u64, own: Wanting<'w>, others: impl Iterator<Item = Wanting<'w>>, now: i64) -> u64 {
    let mut members: Vec<Wanting<'w>> = others.chain([own]).collect();
    members.sort_unstable();
    let (mut left, mut rest, mut own_part) = (total, members.len() as u64, 0);
    for Wanting { want, name } in &members {
        if *want > left / rest {
            break;
        }
        (left, rest) = (left - want, rest - 1);
        if *name == own.name {
            own_part = *want;
        }
    }
    // The last ones want more than there is; where all are satisfied, everybody shares the surplus.
    let (sharing, first) = match rest {
        0 => (&mut members[..], 0),
        _ => {
            let satisfied = members.len() - rest as usize;
            (&mut members[satisfied..], now / ROTATE_MS)
        }
    };
    sharing.sort_unstable_by_key(|member| member.name);
    let count = sharing.len() as u64;
    let Some(rank) = sharing.iter().position(|member| member.name == own.name) else { return own_part };
    let turn = (rank as u64 + first.unsigned_abs()) % count;
    own_part + left / count + u64::from(turn < left % count)
}

/// What a member may hold of a total, of which others hold so much: its part, as far as it holds that already, or they leave it.
pub fn grow(total: u64, others: u64, held: u64, part: u64) -> u64 {
    part.min(held.max(total.saturating_sub(others)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(total: u64, wants: &[u64], now: i64) -> Vec<u64> {
        let names: Vec<String> = (0..wants.len()).map(|number| format!("m{number}")).collect();
        let members = || wants.iter().zip(&names).map(|(want, name)| Wanting { want: *want, name });
        members()
            .map(|own| fair_share(total, own, members().filter(move |other| other.name != own.name), now))
            .collect()
    }

    #[test]
    fn busy_members_get_more_and_nobody_starves() {
        for (total, wants, expected) in [
            (900, &[5_000, 5_000, 10][..], &[445, 445, 10][..]),
            (900, &[100, 0, 10], &[364, 263, 273]),
            (500, &[7], &[500]),
            (0, &[7, 7], &[0, 0]),
            (10, &[0, 0, 0], &[4, 3, 3]),
            (10, &[9, 9, 9], &[4, 3, 3]),
        ] {
            assert_eq!(parts(total, wants, 0), expected, "{total} of {wants:?}");
        }
        // They take turns at what cannot be divided.
        assert_eq!(parts(1, &[5, 5], 0), [1, 0]);
        assert_eq!(parts(1, &[5, 5], ROTATE_MS), [0, 1]);
        assert_eq!(parts(1, &[0, 5], ROTATE_MS), [0, 1]);
    }

    #[test]
    fn a_member_grows_only_into_what_others_leave() {
        for (others, held, part, expected) in
            [(40, 0, 50, 50), (60, 0, 50, 40), (100, 30, 50, 30), (120, 30, 50, 30), (0, 100, 50, 50)]
        {
            assert_eq!(grow(100, others, held, part), expected, "others hold {others}, and it holds {held}");
        }
    }

    #[test]
    fn parts_are_the_total_at_every_moment() {
        for total in 0..40 {
            for wants in [[0, 1, 2, 3], [9, 9, 9, 9], [30, 1, 30, 1], [0, 0, 0, 50]] {
                for now in [0, ROTATE_MS, 3 * ROTATE_MS] {
                    let parts = parts(total, &wants, now);
                    assert_eq!(parts.iter().sum::<u64>(), total, "{wants:?}");
                    for (part, want) in parts.iter().zip(wants) {
                        // The bound of budgets is half of that.
                        assert!(*part >= want.min(total / 4), "{part} of {total}, {want} wanted");
                    }
                }
            }
        }
    }
}
