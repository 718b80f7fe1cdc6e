"""castctl: one apply from nothing, then cold commands against the running supervisor."""
import json
from harness import Adapter
from adapters._util import *

B = os.environ.get('CASTCTL', str(__import__('pathlib').Path(__file__).resolve().parents[2] / 'bin' / 'castctl'))


class A(Adapter):
    name = 'castctl'; crash_settle = 0.2; max_n = 1000

    def __init__(self, h):
        super().__init__(h)
        self.home = str(h.work / 'home')
        self.envs = {'CAST_HOME': self.home}
        self.conf = str(h.work / 'cast.toml')

    def version(self): return self.h.run([B, 'version'])[2].strip()

    def configure(self, specs):
        self.specs = specs
        # Restart always, at once and without a limit: the bench kills on purpose.
        one = '[[instance]]\nname = "%s"\nargv = %s\nrestart = {policy = "always", backoff = "0s", limit = 0}\n'
        auto = [s for s in specs if s.autostart]
        with open(self.conf, 'w') as f:
            f.write('\n'.join(one % (s.name, json.dumps(s.argv(self.h))) for s in auto))
        self.idle = [s for s in specs if not s.autostart]

    def start_all(self): return self.h.run_filed([B, 'apply', '-f', self.conf])[0]

    def start_idle(self):
        """Manager up, nothing running: the instances are known and stopped."""
        s = self.h.run_filed([B, 'sweep'])[0]
        for sp in self.idle:
            self.h.run_filed([B, 'start', sp.name, '--restart', 'always', '--', '/bin/true'])
            self.h.run_filed([B, 'stop', sp.name])
            # The real command comes with the start that is measured.
        return s

    def wait_idle(self): time.sleep(0.2)

    def start_one(self, n):
        s = next(s for s in self.specs if s.name == n)
        return self.h.run([B, 'start', n, '--restart', 'always', '--'] + s.argv(self.h))[0]

    def stop_one(self, n): return self.h.run([B, 'stop', n])[0]
    def status(self): return self.h.run([B, 'status'])
    def rpc(self): return http_rpc(self.home + '/run/supervisor.sock', 'GET', '/v1/instances')
    def stop_all(self): return self.h.run([B, 'stop', '--all'])[0]

    def cast(self, word):
        r = []
        for p in self.h.managers():
            a = open(f'/proc/{p}/cmdline', 'rb').read().split(b'\0')
            if word in a: r.append(p)
        return r

    def main_pids(self): return self.cast(b'supervise')
    def helper_pids(self): return self.cast(b'host')
    def after_crash(self): return self.h.run_filed([B, 'sweep'])[0]
    def shutdown(self): self.h.run([B, 'down', '--all'])

    def _dir(self, n):
        import glob
        for f in glob.glob(self.home + '/instances/*/instance.json'):
            if json.load(open(f))['name'] == n: return os.path.dirname(f)
        return None

    def log_files(self, n):
        import glob
        d = self._dir(n)
        return sorted(glob.glob(d + '/journal/*.log')) if d else []

    def dump_log(self, n):
        """The agent's output as castctl gives it back."""
        out = str(self.h.work / 'dump')
        with open(out, 'wb') as f:
            import subprocess
            subprocess.run([B, 'logs', n], stdout=f, env=self.h.env(), check=True)
        return [out]
