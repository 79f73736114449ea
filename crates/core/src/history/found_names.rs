//! Names and their numbers as the headers of approved records tell them: from these the tables of names are repaired.

use std::collections::BTreeMap;

use crate::intent::class::{Campaign, ClassNumbers, Kind, KindNames};

/// Numbers of kinds that are not given again above the highest one found. Some may be in histories and on no record: of approvals
/// that were never published (an aborted transaction, a decision over HTTP), or of names that only denied intents have.
const KINDS_KEPT_FREE: u32 = 256;
/// The same of campaigns, of which there are many more.
const CAMPAIGNS_KEPT_FREE: u32 = 65_536;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundNames {
    kinds: BTreeMap<u32, KindNames>,
    campaigns: BTreeMap<u32, String>,
    campaign_numbers: BTreeMap<String, u32>,
    highest: [u32; 2],
}

/// Whether a record is within the history, so that its numbers may be in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    InHistory,
    Older,
}

/// The same number was given to two names, or two numbers to one campaign. It names channels, categories and campaigns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}: a server that had lost writes gave numbers again. What the histories hold cannot be told apart")]
pub struct Conflict(String);

impl FoundNames {
    /// Adds the class of one record; fails where it contradicts another record within the history.
    pub fn add(
        &mut self,
        [channel, category, campaign]: [Option<String>; 3],
        (kind, number): ClassNumbers,
        age: Age,
    ) -> Result<(), Conflict> {
        let named_kind = (channel.is_some() || category.is_some()) && ![Kind::NONE, Kind::OVERFLOW].contains(&kind);
        if named_kind {
            self.kind(kind.0.into(), (channel, category), age)?;
        }
        match campaign.filter(|_| ![Campaign::NONE, Campaign::OVERFLOW].contains(&number)) {
            Some(name) => self.campaign(number.0, name, age),
            None => Ok(()),
        }
    }

    /// Adds all that others found; fails where they contradict each other.
    pub fn merge(&mut self, others: Self) -> Result<(), Conflict> {
        others.kinds.into_iter().try_for_each(|(number, names)| self.kind(number, names, Age::InHistory))?;
        others.campaigns.into_iter().try_for_each(|(number, name)| self.campaign(number, name, Age::InHistory))?;
        for (highest, theirs) in self.highest.iter_mut().zip(others.highest) {
            *highest = theirs.max(*highest);
        }
        Ok(())
    }

    fn kind(&mut self, number: u32, names: KindNames, age: Age) -> Result<(), Conflict> {
        self.highest[0] = number.max(self.highest[0]);
        if age == Age::Older {
            return Ok(());
        }
        // A kind with two numbers harms nobody: a filter counts both.
        if let Some(known) = self.kinds.get(&number).filter(|known| **known != names) {
            return Err(Conflict(format!("number {number} is that of {known:?} and of {names:?}")));
        }
        self.kinds.insert(number, names);
        Ok(())
    }

    fn campaign(&mut self, number: u32, name: String, age: Age) -> Result<(), Conflict> {
        self.highest[1] = number.max(self.highest[1]);
        if age == Age::Older {
            return Ok(());
        }
        if let Some(known) = self.campaigns.get(&number).filter(|known| **known != name) {
            return Err(Conflict(format!("number {number} is that of campaigns {known:?} and {name:?}")));
        }
        if let Some(known) = self.campaign_numbers.get(&name).filter(|known| **known != number) {
            return Err(Conflict(format!("campaign {name:?} has numbers {known} and {number}")));
        }
        self.campaign_numbers.insert(name.clone(), number);
        self.campaigns.insert(number, name);
        Ok(())
    }

    /// The kinds by their numbers, and the next number to be given.
    pub fn kinds(&self) -> (&BTreeMap<u32, KindNames>, u32) {
        (&self.kinds, (self.highest[0] + KINDS_KEPT_FREE + 1).min(Kind::OVERFLOW.0.into()))
    }

    /// The campaigns by their numbers, and the next number to be given.
    pub fn campaigns(&self) -> (&BTreeMap<u32, String>, u32) {
        (&self.campaigns, (self.highest[1] + CAMPAIGNS_KEPT_FREE + 1).min(Campaign::OVERFLOW.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(channel: &str, campaign: &str) -> [Option<String>; 3] {
        let name = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
        [name(channel), None, name(campaign)]
    }

    fn add(found: &mut FoundNames, channel: &str, campaign: &str, numbers: (u16, u32)) -> Result<(), Conflict> {
        found.add(class(channel, campaign), (Kind(numbers.0), Campaign(numbers.1)), Age::InHistory)
    }

    #[test]
    fn names_keep_their_numbers_and_no_number_near_them_is_given_again() {
        let (mut one, mut other) = (FoundNames::default(), FoundNames::default());
        add(&mut one, "push", "spring", (3, 7)).unwrap();
        add(&mut one, "push", "spring", (3, 7)).unwrap();
        add(&mut one, "push", "unknown", (0, 0)).unwrap();
        add(&mut one, "push", "overflow", (u16::MAX, 0x00FF_FFFF)).unwrap();
        add(&mut other, "push", "", (9, 0)).unwrap();
        other.add(class("old", "old"), (Kind(3), Campaign(900)), Age::Older).unwrap();
        one.merge(other).unwrap();
        let push = (Some("push".to_owned()), None);
        assert_eq!(one.kinds(), (&BTreeMap::from([(3, push.clone()), (9, push)]), 9 + 257));
        assert_eq!(one.campaigns(), (&BTreeMap::from([(7, "spring".to_owned())]), 900 + 65_537));
        add(&mut one, "x", "x", (65_000, 0x00FF_FFFE)).unwrap();
        assert_eq!((one.kinds().1, one.campaigns().1), (65_257, 0x00FF_FFFF), "never above what a table holds");
    }

    #[test]
    fn a_number_of_two_names_and_a_campaign_of_two_numbers_are_refused() {
        let mut found = FoundNames::default();
        add(&mut found, "push", "spring", (3, 7)).unwrap();
        for (channel, campaign, numbers) in [("email", "", (3, 0)), ("", "summer", (0, 7)), ("", "spring", (0, 8))] {
            assert!(add(&mut found.clone(), channel, campaign, numbers).is_err(), "{channel} {campaign}");
            let mut other = FoundNames::default();
            add(&mut other, channel, campaign, numbers).unwrap();
            assert!(found.clone().merge(other).is_err(), "{channel} {campaign}");
        }
    }
}
