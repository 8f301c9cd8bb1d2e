//! Choices by words: those of users, of the wire and of sample files.

/// An enum whose variants have words, all of them in order.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident: $count:literal {
        $($(#[$each:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$each])* $variant,)+
        }

        impl $name {
            /// All of them, in order.
            pub const ALL: [$name; $count] = [$($name::$variant,)+];

            /// Its word.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str(self.word())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                let found = $name::ALL.into_iter().find(|one| one.word() == word);
                found.ok_or_else(|| format!("{word:?} is not one of {}", [$($word,)+].join(", ")))
            }
        }
    };
}
pub(crate) use words;

#[cfg(test)]
mod tests {
    words! {
        /// Two.
        Choice: 2 { Left = "left", Right = "right", }
    }

    #[test]
    fn every_variant_has_a_word_and_others_are_refused() {
        for choice in Choice::ALL {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        let refusal = "up".parse::<Choice>().unwrap_err();
        assert!(refusal.contains("up") && refusal.contains("left, right"), "{refusal}");
    }
}
