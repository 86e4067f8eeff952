"""One line for each figure, and whether it is what it must be."""

import os


class Report:
    def __init__(self):
        self.num_misses = 0
        self.num_figures = 0

    def section(self, title):
        print('\n%s   (load average %.1f)' % (title, os.getloadavg()[0]), flush=True)

    def figure(self, name, value, unit='', at_most=None, at_least=None, equals=None):
        """@return  whether the value is within its bound; without one it is only shown"""
        bounds = [('<=', at_most, at_most is None or value <= at_most),
                  ('>=', at_least, at_least is None or value >= at_least),
                  ('==', equals, equals is None or value == equals)]
        wanted = ', '.join('%s %g' % (sign, bound) for sign, bound, _ in bounds if bound is not None)
        is_met = all(met for _, _, met in bounds)
        verdict = 'note' if not wanted else 'ok' if is_met else 'MISS'
        self.num_figures += 1
        self.num_misses += not is_met
        print('  %-5s %-58s %12.6g %-10s %s' % (verdict, name, value, unit, wanted), flush=True)
        return is_met

    def broken(self, name, error):
        self.num_misses += 1
        print('  MISS  %s: %s' % (name, error), flush=True)

    def end(self):
        print('\n%d figures, %d missed' % (self.num_figures, self.num_misses), flush=True)
        return 1 if self.num_misses else 0
