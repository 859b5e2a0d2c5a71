"""Operations: generators that yield statements with their parameters and receive rows. No I/O, no driver."""
