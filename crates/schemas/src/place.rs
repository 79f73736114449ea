//! The places of the mapped fields, as a tree of steps.

use weir_core::intent::fields::{FieldMap, IntentField};

/// A place in a value, with the places inside it. A field has none inside it: the map refuses that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) fields: Vec<IntentField>,
    pub(crate) steps: Vec<(String, Place)>,
}

impl Place {
    pub(crate) fn root(map: &FieldMap) -> Self {
        let mut root = Self::default();
        for field in IntentField::ALL {
            let mut at = &mut root;
            for step in map.steps(field) {
                at = at.entry(step);
            }
            at.fields.push(field);
        }
        root
    }

    pub(crate) fn step(&self, name: &str) -> Option<&Self> {
        self.steps.iter().find_map(|(step, place)| (step == name).then_some(place))
    }

    /// The steps that are the number of an element (RFC 6901: no leading zeros).
    pub(crate) fn elements(&self) -> impl Iterator<Item = (u64, &Self)> {
        self.steps.iter().filter_map(|(step, place)| {
            let number: u64 = step.parse().ok()?;
            (number.to_string() == *step).then_some((number, place))
        })
    }

    fn entry(&mut self, step: String) -> &mut Self {
        let known = self.steps.iter().position(|(name, _)| *name == step);
        let index = known.unwrap_or_else(|| {
            self.steps.push((step, Self::default()));
            self.steps.len() - 1
        });
        &mut self.steps[index].1
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use weir_core::intent::fields::IntentField;

    use super::*;

    /// Fields at any kind of place: in a record, a list, a map, and of a type that holds no field.
    pub(crate) fn mapped() -> FieldMap {
        let places = include!("../fixtures/places.rs");
        FieldMap::new(places.into_iter().chain([(IntentField::NotBefore, "/price")])).unwrap()
    }
}
