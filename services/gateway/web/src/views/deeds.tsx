import type { Deed } from "../deeds.ts";
import { apartShort } from "../numbers.ts";

export function Deeds({ deeds, since_ns }: { deeds: Deed[]; since_ns: number }) {
  const after = (at_ns: number) => (at_ns ? apartShort(at_ns, since_ns) : "–");
  return (
    <section class="deeds" aria-labelledby="deeds">
      <h3 id="deeds">Commands and outcomes</h3>
      <div class="wide">
        <table>
          <thead>
            <tr>
              <th scope="col">Node</th>
              <th scope="col">What</th>
              <th scope="col">By whom</th>
              <th scope="col">Outcome</th>
              <th scope="col" class="number">
                Began
              </th>
              <th scope="col" class="number">
                Moved
              </th>
              <th scope="col" class="number">
                Confirmed
              </th>
            </tr>
          </thead>
          <tbody>
            {deeds.map((deed) => (
              <tr key={deed.id}>
                <th scope="row">{deed.node}</th>
                <td>{deed.verb}</td>
                <td>{deed.armed ? "by itself" : "commanded"}</td>
                <td>
                  {deed.status === "already" ? "was so already" : deed.status}
                  {deed.reason && `: ${deed.reason}`}
                </td>
                <td class="number">{after(deed.began_ns)}</td>
                <td class="number">{after(deed.moved_ns)}</td>
                <td class="number">
                  {deed.expected > 0 && `${deed.confirmed} of ${deed.expected}${deed.confirmed_ns > 0 ? ", " : ""}`}
                  {deed.confirmed_ns > 0 && after(deed.confirmed_ns)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
