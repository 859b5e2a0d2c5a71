-- Goes on in the next segment when the open one is a day old.
select smena.leave_segment()
