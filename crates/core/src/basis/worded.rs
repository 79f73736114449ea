//! Values that are written as words.

/// Declares an enum with a word for each value. Headers, JSON and metrics have the same word.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $visible:vis enum $name:ident { $($(#[$of:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visible enum $name {
            $($(#[$of])* $value,)+
        }

        impl $name {
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }
    };
}

pub use words;
