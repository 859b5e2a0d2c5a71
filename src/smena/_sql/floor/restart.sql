-- Every floor starts again: after the log was rewound nothing is known of what lies below.
update smena.floors set floor = 0, straggler = null, updated_at = clock_timestamp()
