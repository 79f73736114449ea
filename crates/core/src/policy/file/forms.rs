//! Which values an option of a policy may have: its check, and what the schema and the documentation say of it, together.

use std::{collections::BTreeSet, ops::RangeInclusive, sync::Arc};

use super::options::{Declared, DeclaredTable, ValueAt};
use crate::basis::document::value::{self, Parsed, in_words};

/// Names that a rule is for.
pub(super) type Names = Option<BTreeSet<String>>;

/// What an option's value looks like in the file.
pub(super) enum Form {
    Text,
    Zone,
    /// A name that may be a part of a topic's.
    TopicPart,
    TimeOfDay,
    Words(Vec<&'static str>),
    /// A whole number: the bits of its type, the least and the most.
    Whole(usize, u64, u64),
    Share,
    Flag,
    /// A flag that cannot be off.
    True,
    /// A name or a list of names.
    Names,
    Duration,
    /// A list of such caps, or none.
    Caps(fn() -> DeclaredTable),
    Table(fn() -> DeclaredTable),
    /// Such tables by names.
    ByName(fn() -> DeclaredTable),
    /// A list of such tables, and how many it may have.
    Several(fn() -> DeclaredTable, Option<usize>),
}

/// The form of an option, and the check that keeps to it.
pub(super) struct Check<F> {
    pub(super) form: Form,
    pub(super) read: F,
}

/// A function that turns a value into an option; `None` where it is wrong, which it notes.
pub(super) trait Read<T>: Fn(&ValueAt<'_>) -> Option<T> {}
impl<T, F: Fn(&ValueAt<'_>) -> Option<T>> Read<T> for F {}

impl<F> Check<F> {
    /// The same, with one more rule for what was read.
    pub(super) fn and<T, U>(self, rule: fn(T, &ValueAt<'_>) -> Parsed<U>) -> Check<impl Read<U>>
    where
        F: Fn(&ValueAt<'_>) -> Option<T>,
    {
        let Self { form, read } = self;
        Check { form, read: move |at: &ValueAt<'_>| read(at).and_then(|value| at.parse(|_| rule(value, at))) }
    }
}

pub(super) fn text() -> Check<impl Read<Arc<str>>> {
    Check { form: Form::Text, read: |at: &ValueAt<'_>| at.parse(value::text).map(Arc::<str>::from) }
}

/// A name or a list of names.
pub(super) fn names() -> Check<impl Read<BTreeSet<String>>> {
    Check { form: Form::Names, read: |at: &ValueAt<'_>| at.parse(value::texts).map(owned) }
}

fn owned(names: Vec<&str>) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

/// A length of time above 0, in milliseconds.
pub(super) fn duration() -> Check<impl Read<i64>> {
    Check { form: Form::Duration, read: |at: &ValueAt<'_>| at.parse(value::duration_ms) }
}

/// The same within bounds.
pub(super) fn between(range: RangeInclusive<i64>) -> Check<impl Read<i64>> {
    let read = move |at: &ValueAt<'_>| {
        at.parse(|node| match value::duration_ms(node)? {
            length_ms if range.contains(&length_ms) => Ok(length_ms),
            length_ms => {
                let [least, most, found] = [*range.start(), *range.end(), length_ms].map(in_words);
                let bounds = if *range.start() == 0 { "at most".to_owned() } else { format!("from {least} to") };
                Err(format!("must be {bounds} {most}, not {found}"))
            }
        })
    };
    Check { form: Form::Duration, read }
}

pub(super) fn flag() -> Check<impl Read<bool>> {
    Check { form: Form::Flag, read: |at: &ValueAt<'_>| at.parse(value::flag) }
}

pub(super) fn whole<T>(range: RangeInclusive<T>) -> Check<impl Read<T>>
where
    T: TryFrom<i128> + Into<i128> + Into<u64> + Copy,
{
    let [least, most] = [*range.start(), *range.end()].map(Into::<u64>::into);
    let read = move |at: &ValueAt<'_>| at.parse(|node| value::whole(node, range.clone()));
    Check { form: Form::Whole(8 * size_of::<T>(), least, most), read }
}

pub(super) fn word<T: Copy>(words: &'static [(&'static str, T)]) -> Check<impl Read<T>> {
    let form = Form::Words(words.iter().map(|(word, _)| *word).collect());
    Check { form, read: move |at: &ValueAt<'_>| at.parse(|node| value::one_of(node, words)) }
}

pub(super) fn table<D: Declared>() -> Check<impl Read<D::Made>> {
    Check { form: Form::Table(D::declared), read: D::read }
}

/// A list of tables: of a kind that problems name, and at most so many. `twins` says why no two may have the same name.
pub(super) fn list<D: Declared>(
    kind: &'static str,
    most: Option<usize>,
    twins: Option<&'static str>,
) -> Check<impl Read<Vec<D::Made>>> {
    let read = move |at: &ValueAt<'_>| at.each(kind, most.unwrap_or(usize::MAX), D::read, twins);
    Check { form: Form::Several(D::declared, most), read }
}
